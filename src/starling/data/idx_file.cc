// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/idx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "starling/base/error.h"

namespace starling::data {
namespace {

constexpr std::uint32_t kImagesMagic = 0x803;
constexpr std::uint32_t kLabelsMagic = 0x801;
constexpr std::uint32_t kLargestSide = 4096;

std::uint32_t big_endian(std::span<const std::uint8_t> bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | bytes[offset + i];
  return value;
}

// The first `most` bytes of the content, unpacked if need be; all of it if it is shorter.
Bytes content(std::span<const std::uint8_t> bytes, std::size_t most, const std::string& what) {
  if (is_gzip(bytes)) return unpack_gzip(bytes, most, what).bytes;
  const std::span<const std::uint8_t> part = bytes.first(std::min(most, bytes.size()));
  return {part.begin(), part.end()};
}

const char* kind(std::uint32_t magic) { return magic == kImagesMagic ? "images" : "labels"; }

// The numbers that follow the magic one.
std::vector<std::uint32_t> read_header(std::span<const std::uint8_t> bytes, std::uint32_t magic, const std::string& what) {
  const std::size_t dimensions = magic & 0xff;
  const std::size_t size = 4 * (1 + dimensions);
  const Bytes header = content(bytes, size, what);
  if (header.size() >= 4 && big_endian(header, 0) != magic) {
    const std::uint32_t found = big_endian(header, 0);
    const bool other = found == kImagesMagic || found == kLabelsMagic;
    throw UserError(fmt::format("{} starts with 0x{:08x}, but idx {} start with 0x{:08x}{}", what, found, kind(magic), magic,
                                other ? fmt::format("; it holds {}", kind(found)) : ""));
  }
  if (header.size() < size) {
    throw UserError(
        fmt::format("{} is truncated: the header of idx {} has {} bytes, but there are {}", what, kind(magic), size, header.size()));
  }
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 1; i <= dimensions; ++i) numbers.push_back(big_endian(header, 4 * i));
  return numbers;
}

// What follows the header: exactly `expected` bytes, or an error.
Bytes read_body(std::span<const std::uint8_t> bytes, std::size_t header, std::uint64_t expected, const std::string& what) {
  const std::size_t whole = header + static_cast<std::size_t>(expected);
  const bool packed = is_gzip(bytes);
  if (!packed && bytes.size() != whole) {
    throw UserError(fmt::format("{} is {}: its header promises {} bytes in all, but there are {}", what,
                                bytes.size() < whole ? "truncated" : "too long", whole, bytes.size()));
  }
  if (!packed) return {bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end()};
  // One byte more than promised shows whether there are more; reaching the end verifies the checksum.
  Unpacked unpacked = unpack_gzip(bytes, whole + 1, what);
  if (unpacked.bytes.size() > whole) {
    throw UserError(fmt::format("{} is too long: its header promises {} bytes in all, but unpacked there are more", what, whole));
  }
  if (unpacked.end != Unpacked::End::whole || unpacked.bytes.size() < whole) {
    throw UserError(fmt::format("{} is truncated: its header promises {} bytes in all, but {} of them can be unpacked{}", what, whole,
                                unpacked.bytes.size(), unpacked.end == Unpacked::End::broken_off ? " before the file breaks off" : ""));
  }
  unpacked.bytes.erase(unpacked.bytes.begin(), unpacked.bytes.begin() + static_cast<std::ptrdiff_t>(header));
  return std::move(unpacked.bytes);
}

}  // namespace

IdxImages parse_idx_images(std::span<const std::uint8_t> bytes, const std::string& what) {
  const std::vector<std::uint32_t> header = read_header(bytes, kImagesMagic, what);
  const std::uint64_t count = header[0];
  const std::uint64_t rows = header[1];
  const std::uint64_t columns = header[2];
  // With both sides this small, the product cannot overflow.
  const bool sides_fit = rows >= 1 && columns >= 1 && rows <= kLargestSide && columns <= kLargestSide;
  if (count == 0 || !sides_fit || count * rows * columns > kLargestFile) {
    throw UserError(
        fmt::format("{} says it holds {} images of {} x {} pixels, but a set has at least one image, sides of 1 to {} and at most "
                    "{} bytes of pixels",
                    what, count, rows, columns, kLargestSide, kLargestFile));
  }
  return {.count = static_cast<std::size_t>(count),
          .rows = static_cast<int>(rows),
          .columns = static_cast<int>(columns),
          .pixels = read_body(bytes, 16, count * rows * columns, what)};
}

Bytes parse_idx_labels(std::span<const std::uint8_t> bytes, int classes, const std::string& what) {
  const std::uint64_t count = read_header(bytes, kLabelsMagic, what)[0];
  if (count == 0 || count > kLargestFile) {
    throw UserError(fmt::format("{} says it holds {} labels, but a set has 1 to {}", what, count, kLargestFile));
  }
  Bytes labels = read_body(bytes, 8, count, what);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= classes) {
      throw UserError(fmt::format("{}: label {} is {}, but there are {} classes, 0 to {}", what, i, labels[i], classes, classes - 1));
    }
  }
  return labels;
}

}  // namespace starling::data
