// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the tests of codecs share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "starling/base/random.h"
#include "starling/codec/codec.h"

namespace starling::codec {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

inline CodecContext context_of(std::size_t size) {
  CodecContext context;
  if (size > 0) context.layout.add("values", {static_cast<std::int64_t>(size)});
  return context;
}

inline Floats random_floats(std::size_t size, std::uint64_t seed) {
  RandomStream random(seed, 0, "codec test");
  Floats values(size);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

// What a receiver gets of one update.
inline Floats send(Codec& codec, const Floats& update) {
  Bytes bytes;
  codec.encode(update, bytes);
  Floats decoded(update.size(), -1);
  const auto error = codec.decode(bytes, decoded);
  EXPECT_EQ(error, std::nullopt);
  return decoded;
}

inline Floats residual_of(const Codec& codec, std::size_t size) {
  Floats residual(size);
  codec.add_residual(residual);
  return residual;
}

// The bytes behind the header.
inline Bytes body_of(const Bytes& bytes) { return {bytes.begin() + 16, bytes.end()}; }

inline Bytes bytes_of(const std::vector<int>& values) {
  Bytes result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

inline void put_float(Bytes& bytes, std::size_t at, float value) { std::memcpy(bytes.data() + at, &value, sizeof(value)); }

}  // namespace starling::codec
