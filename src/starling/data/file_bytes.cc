// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/file_bytes.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "starling/base/error.h"
#include "starling/base/units.h"

namespace starling::data {
namespace {

constexpr std::size_t kFirstChunk = std::size_t{64} << 10;

// Ends the stream whichever way the function is left.
class Inflater {
 public:
  explicit Inflater(std::span<const std::uint8_t> input) {
    stream_.next_in = const_cast<Bytef*>(input.data());  // zlib only reads it.
    stream_.avail_in = static_cast<uInt>(input.size());
    const int gzip_only = 15 + 16;
    STARLING_CHECK(inflateInit2(&stream_, gzip_only) == Z_OK, std::string("zlib has no memory"));
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  // Fills `to` as far as the stream goes; returns how far, with zlib's answer in `result`.
  std::size_t fill(std::span<std::uint8_t> to, int& result) {
    stream_.next_out = to.data();
    stream_.avail_out = static_cast<uInt>(to.size());
    result = inflate(&stream_, Z_NO_FLUSH);
    return to.size() - stream_.avail_out;
  }

  std::size_t unread() const { return stream_.avail_in; }
  const char* message() const { return stream_.msg == nullptr ? "no reason given" : stream_.msg; }

 private:
  z_stream stream_{};
};

}  // namespace

Bytes read_data_file(const std::string& path, const std::string& remedy) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw UserError(fmt::format("there is no file '{}': {}", path, remedy));
  if (std::filesystem::is_directory(status))
    throw UserError(fmt::format("'{}' is a folder, but a file is expected there: {}", path, remedy));
  if (!std::filesystem::is_regular_file(status)) throw UserError(fmt::format("'{}' is not a regular file: {}", path, remedy));
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kLargestFile) {
    throw UserError(fmt::format("'{}' has {} bytes, but files of data sets have at most {}", path, size, kLargestFile));
  }
  Bytes bytes(error ? 0 : static_cast<std::size_t>(size));
  std::ifstream in(path, std::ios::binary);
  if (error || !in || !in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
    throw UserError(fmt::format("cannot read '{}': {}", path, error ? error.message() : std::strerror(errno)));
  }
  return bytes;
}

bool is_gzip(std::span<const std::uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

Unpacked unpack_gzip(std::span<const std::uint8_t> bytes, std::size_t most, const std::string& what) {
  STARLING_CHECK(bytes.size() <= kLargestFile && most <= 2 * kLargestFile, std::string("sizes that zlib can count"));
  Inflater inflater(bytes);
  Unpacked result;
  std::size_t filled = 0;
  for (;;) {
    // Grows with what really comes out, whatever was promised.
    result.bytes.resize(std::min(most, std::max(kFirstChunk, 2 * filled)));
    int answer = Z_OK;
    filled += inflater.fill(std::span(result.bytes).subspan(filled), answer);
    if (answer == Z_STREAM_END) break;
    if (answer != Z_OK && answer != Z_BUF_ERROR) {
      throw UserError(
          fmt::format("{} is damaged: its gzip stream cannot be unpacked after {} bytes ({})", what, filled, inflater.message()));
    }
    if (filled < result.bytes.size()) {
      result.end = Unpacked::End::broken_off;
    } else if (filled == most) {
      result.end = Unpacked::End::more;
    } else {
      continue;
    }
    result.bytes.resize(filled);
    return result;
  }
  result.bytes.resize(filled);
  if (inflater.unread() > 0) throw UserError(fmt::format("{} is too long: {} bytes follow its gzip stream", what, inflater.unread()));
  return result;
}

}  // namespace starling::data
