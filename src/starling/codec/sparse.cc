// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/codec/sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "starling/codec/wire.h"

namespace starling::codec {
namespace {

// Reads a gap and moves `next` behind it. False if it does not end, or is longer than any index.
bool read_gap(std::span<const std::byte> bytes, std::size_t& next, std::uint64_t& gap) {
  gap = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    if (next == bytes.size()) return false;
    const auto byte = static_cast<std::uint64_t>(bytes[next++]);
    gap |= (byte & 127U) << shift;
    if (byte < 128) return true;
  }
  return false;
}

}  // namespace

std::size_t largest_sparse_bytes(std::size_t count, std::size_t k) {
  // A gap of 2^7 and more takes a second byte, and there is room for only so many of them; and so on.
  std::size_t gaps = k;
  for (unsigned shift = 7; shift < 35; shift += 7) gaps += std::min(k, count >> shift);
  return kHeaderBytes + gaps + k * sizeof(float);
}

void encode_sparse(std::span<const float> values, std::span<const std::uint32_t> indices, std::vector<std::byte>& bytes) {
  bytes.resize(largest_sparse_bytes(values.size(), indices.size()));
  write_header(bytes.data(), {.format = Format::sparse, .parameter = static_cast<std::uint32_t>(indices.size()), .count = values.size()});
  std::byte* to = bytes.data() + kHeaderBytes;
  std::uint32_t expected = 0;
  for (const std::uint32_t index : indices) {
    std::uint32_t gap = index - expected;
    for (; gap >= 128; gap >>= 7U) *to++ = static_cast<std::byte>(gap | 128U);
    *to++ = static_cast<std::byte>(gap);
    expected = index + 1;
  }
  for (const std::uint32_t index : indices) {
    store(to, values[index]);
    to += sizeof(float);
  }
  bytes.resize(static_cast<std::size_t>(to - bytes.data()));
}

std::optional<std::string> decode_sparse(std::span<const std::byte> bytes, std::span<float> values) {
  std::uint32_t k = 0;
  if (auto error = read_header(bytes, Format::sparse, values.size(), k)) return error;
  // At least one byte and a float for each, so that a claim of many does not cost more than was sent.
  if (k > values.size()) return fmt::format("the encoded update has {} components of {}", k, values.size());
  if (bytes.size() - kHeaderBytes < k * (1 + sizeof(float))) return wrong_length(bytes.size(), kHeaderBytes + k * (1 + sizeof(float)));
  const std::size_t values_at = bytes.size() - k * sizeof(float);
  const std::span<const std::byte> gaps = bytes.subspan(kHeaderBytes, values_at - kHeaderBytes);
  const std::byte* from = bytes.data() + values_at;
  std::fill(values.begin(), values.end(), 0.0F);
  std::size_t next = 0;
  std::uint64_t expected = 0;
  bool finite = true;
  for (std::uint32_t i = 0; i < k; ++i, from += sizeof(float)) {
    std::uint64_t gap = 0;
    if (!read_gap(gaps, next, gap)) return std::string("the encoded update has a place that is too long, or ends within one");
    const std::uint64_t index = expected + gap;
    if (index >= values.size()) return fmt::format("the encoded update names component {} of {}", index, values.size());
    const auto value = load<float>(from);
    finite = finite && std::isfinite(value);
    values[index] = value;
    expected = index + 1;
  }
  if (next != gaps.size()) return wrong_length(bytes.size(), bytes.size() - (gaps.size() - next));
  if (!finite) return not_finite("a value");
  return std::nullopt;
}

}  // namespace starling::codec
