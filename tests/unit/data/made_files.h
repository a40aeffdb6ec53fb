// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Files of data sets, made small for tests: valid ones, to be damaged.
#pragma once

#include <gtest/gtest.h>
#include <png.h>
#include <stdlib.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace starling::data {

using Bytes = std::vector<std::uint8_t>;

inline void append_big_endian(Bytes& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(value >> shift));
}

// Pixels count up from 0, and wrap.
inline Bytes idx_images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  Bytes bytes;
  for (const std::uint32_t number : {0x803U, count, rows, columns}) append_big_endian(bytes, number);
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
  return bytes;
}

// Labels 0, 1, …, 9, 0, …
inline Bytes idx_labels(std::uint32_t count) {
  Bytes bytes;
  for (const std::uint32_t number : {0x801U, count}) append_big_endian(bytes, number);
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i % 10));
  return bytes;
}

inline Bytes gzip(const Bytes& plain) {
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::runtime_error("deflateInit2");
  Bytes packed(deflateBound(&stream, plain.size()) + 64);
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  const auto size = static_cast<std::ptrdiff_t>(stream.total_out);
  deflateEnd(&stream);
  return {packed.begin(), packed.begin() + size};
}

// Image i has the label i mod 10, and pixels that count up from i.
inline Bytes cifar_batch(std::size_t records) {
  Bytes bytes;
  for (std::size_t i = 0; i < records; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i % 10));
    for (std::size_t pixel = 0; pixel < 3072; ++pixel) bytes.push_back(static_cast<std::uint8_t>(i + pixel));
  }
  return bytes;
}

// A PNG image of this many bytes per pixel (3: RGB, 1: grey).
inline Bytes png(std::uint32_t width, std::uint32_t height, const Bytes& pixels, std::uint32_t format = PNG_FORMAT_RGB) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  image.flags = PNG_IMAGE_FLAG_FAST;
  png_alloc_size_t size = 0;
  if (png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr) == 0) throw std::runtime_error(image.message);
  Bytes bytes(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0) throw std::runtime_error(image.message);
  bytes.resize(size);
  return bytes;
}

inline Bytes text_bytes(const std::string& text) { return {text.begin(), text.end()}; }

inline void write(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A new empty folder, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / ("starling-data-" + std::string(6, 'X'))).string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// The message of the E that `act` throws; "nothing was thrown" if it throws nothing.
template <class E, class Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Whether the text has all these parts.
template <class... Parts>
testing::AssertionResult has(const std::string& text, const Parts&... parts) {
  for (const std::string& part : {std::string(parts)...}) {
    if (text.find(part) == std::string::npos) return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
  }
  return testing::AssertionSuccess();
}

}  // namespace starling::data
