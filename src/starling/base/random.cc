// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/random.h"

#include <cmath>

#include "starling/base/error.h"
#include "starling/base/philox_blocks.h"
#include "starling/base/portable_math.h"

namespace starling {
namespace {

// FNV-1a: spreads a short name over 64 bits.
std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

// The finaliser of SplitMix64: a bijection in which every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = 0xD2511F53ULL * counter[0];
    const std::uint64_t product1 = 0xCD9E8D57ULL * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1), high(product0) ^ counter[3] ^ key[1], low(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::uint32_t rank, std::string_view purpose) : rank_(rank) {
  const std::uint64_t key = mix(seed + mix(hash_name(purpose)));
  key_ = {low(key), high(key)};
}

std::uint32_t RandomStream::next_u32() {
  const std::uint64_t word = position_ % 4;
  if (word == 0) {
    const std::uint64_t block = position_ / 4;
    block_ = philox4x32({low(block), high(block), rank_, 0}, key_);
  }
  ++position_;
  return block_[word];
}

std::uint64_t RandomStream::next_u64() {
  const std::uint64_t first = next_u32();
  return first << 32 | next_u32();
}

void RandomStream::fill(std::span<std::uint32_t> words) {
  std::size_t done = 0;
  while (done < words.size() && position_ % 4 != 0) words[done++] = next_u32();
  const std::size_t blocks = (words.size() - done) / 4;
  philox_blocks(position_ / 4, blocks, rank_, key_, words.data() + done);
  position_ += 4 * blocks;
  done += 4 * blocks;
  while (done < words.size()) words[done++] = next_u32();
}

double RandomStream::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

std::uint64_t RandomStream::below(std::uint64_t bound) {
  STARLING_CHECK(bound > 0, std::string("RandomStream::below needs a positive bound"));
  // Values under `threshold` = 2^64 mod bound would make the small results more likely; they are drawn again.
  const std::uint64_t threshold = (0 - bound) % bound;
  std::uint64_t value = next_u64();
  while (value < threshold) value = next_u64();
  return value % bound;
}

double RandomStream::normal() {
  for (;;) {
    const double x = 2 * uniform() - 1;
    const double y = 2 * uniform() - 1;
    const double square = x * x + y * y;
    if (square < 1 && square > 1e-300) return x * std::sqrt(-2 * portable_log(square) / square);
  }
}

void RandomStream::seek(std::uint64_t position) {
  position_ = position - position % 4;
  while (position_ < position) next_u32();
}

}  // namespace starling
