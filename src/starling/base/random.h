// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are a function of their position: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011). A stream is named by (seed, rank, purpose); streams with different names are independent, and a
// stream gives the same numbers on every fabric, machine and compiler. Drawing for one purpose never disturbs another: switching a
// fault on does not change the order of the batches.
//
//   RandomStream shuffle(seed, rank, "shuffle");
//   std::uint64_t index = shuffle.below(60000);
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace starling {

// Ten rounds of Philox4x32: 128 bits of counter and 64 bits of key to 128 random bits.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// Not thread-safe: one stream belongs to one rank. Copyable; a copy goes on from the same position.
class RandomStream {
 public:
  using result_type = std::uint32_t;  // A UniformRandomBitGenerator of the standard library.

  RandomStream(std::uint64_t seed, std::uint32_t rank, std::string_view purpose);

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return next_u32(); }

  std::uint32_t next_u32();
  std::uint64_t next_u64();

  // The next words.size() numbers of next_u32(), several times faster for many.
  void fill(std::span<std::uint32_t> words);

  // Uniform in [0, 1), all 53 bits used.
  double uniform();

  // Uniform in {0, …, bound - 1}, without bias. Precondition: bound > 0.
  std::uint64_t below(std::uint64_t bound);

  // Standard normal, by the polar method. Keeps nothing back, so that position() is the whole state.
  double normal();

  // How many 32-bit words were drawn; seek(position()) of another stream with the same name continues it exactly.
  std::uint64_t position() const { return position_; }
  void seek(std::uint64_t position);

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t rank_;
  std::uint64_t position_ = 0;
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace starling
