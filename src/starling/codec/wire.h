// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What every encoded update begins with: 16 bytes that say which codec made it, one number of that codec, and for how many floats. All
// numbers are little-endian, as on every machine Starling runs on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace starling::codec {

static_assert(std::endian::native == std::endian::little, "encoded updates are little-endian");

enum class Format : std::uint8_t { fp32 = 1, fp16, bf16, int8, one_bit, threshold, sparse, random_k, power_sgd };

inline constexpr std::size_t kHeaderBytes = 16;

// From here on an update is larger than the caches, and writing past them is faster.
inline constexpr std::size_t kStreamFloats = std::size_t{4} << 20;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

struct Header {
  Format format{};
  std::uint32_t parameter = 0;
  std::uint64_t count = 0;
};

void write_header(std::byte* to, const Header& header);

// What is wrong with the first bytes of an update of `count` floats in this format, if anything is; `parameter` is the caller's to check.
[[nodiscard]] std::optional<std::string> read_header(std::span<const std::byte> bytes, Format format, std::size_t count,
                                                     std::uint32_t& parameter);

// The same, where the parameter and the whole length are known beforehand.
[[nodiscard]] std::optional<std::string> check_message(std::span<const std::byte> bytes, const Header& header, std::size_t total_bytes);

// Complaints that several decoders have.
std::string wrong_length(std::size_t actual, std::size_t expected);
std::string not_finite(std::string_view what);

}  // namespace starling::codec
