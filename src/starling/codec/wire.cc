// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/codec/wire.h"

#include <fmt/format.h>

namespace starling::codec {
namespace {

constexpr std::uint32_t kMagic = 0x005553;  // "SU", and a zero; the format is the fourth byte.

const char* name_of(Format format) {
  switch (format) {
    case Format::fp32:
      return "fp32";
    case Format::fp16:
      return "fp16";
    case Format::bf16:
      return "bf16";
    case Format::int8:
      return "int8";
    case Format::one_bit:
      return "1bit";
    case Format::threshold:
      return "threshold";
    case Format::sparse:
      return "topk or dgc";
    case Format::random_k:
      return "randomk";
    case Format::power_sgd:
      return "powersgd";
  }
  return "an unknown codec";
}

}  // namespace

void write_header(std::byte* to, const Header& header) {
  store(to, kMagic | static_cast<std::uint32_t>(header.format) << 24U);
  store(to + 4, header.parameter);
  store(to + 8, header.count);
}

std::optional<std::string> read_header(std::span<const std::byte> bytes, Format format, std::size_t count, std::uint32_t& parameter) {
  if (bytes.size() < kHeaderBytes)
    return fmt::format("an encoded update begins with {} bytes of header, but has only {}", kHeaderBytes, bytes.size());
  const auto word = load<std::uint32_t>(bytes.data());
  if ((word & 0xffffffU) != kMagic) return std::string("this is no encoded update: its first bytes are wrong");
  const auto actual = static_cast<Format>(word >> 24U);
  if (actual != format) return fmt::format("the update was encoded by {}, but {} was expected", name_of(actual), name_of(format));
  const auto floats = load<std::uint64_t>(bytes.data() + 8);
  if (floats != count) return fmt::format("the update has {} floats, but {} were expected", floats, count);
  parameter = load<std::uint32_t>(bytes.data() + 4);
  return std::nullopt;
}

std::optional<std::string> check_message(std::span<const std::byte> bytes, const Header& header, std::size_t total_bytes) {
  std::uint32_t parameter = 0;
  if (auto error = read_header(bytes, header.format, header.count, parameter)) return error;
  if (parameter != header.parameter) {
    return fmt::format("the update was encoded by another {}: its number is {:#010x}, but {:#010x} was expected", name_of(header.format),
                       parameter, header.parameter);
  }
  if (bytes.size() != total_bytes) return wrong_length(bytes.size(), total_bytes);
  return std::nullopt;
}

std::string wrong_length(std::size_t actual, std::size_t expected) {
  return fmt::format("the encoded update has {} bytes, but {} were expected", actual, expected);
}

std::string not_finite(std::string_view what) { return fmt::format("the encoded update has {} that is not finite", what); }

}  // namespace starling::codec
