// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/philox_blocks.h"

#include "starling/base/random.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/base/philox_blocks.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace starling::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As many blocks as possible; returns how many.
std::size_t many_blocks(std::uint64_t first, std::size_t count, std::uint32_t rank, std::array<std::uint32_t, 2> key,
                        std::uint32_t* HWY_RESTRICT words) {
  std::size_t done = 0;
#if HWY_TARGET == HWY_SCALAR  // Nothing lies side by side there.
  static_cast<void>(first), static_cast<void>(count), static_cast<void>(rank), static_cast<void>(key), static_cast<void>(words);
#else
  // A 32-bit number in every 64-bit lane, because products have 64 bits.
  const hn::CappedTag<std::uint64_t, 8> wide;
  const hn::Repartition<std::uint32_t, decltype(wide)> narrow;
  const std::size_t lanes = hn::Lanes(wide);
  const auto low_half = hn::Set(wide, 0xffffffffU);
  const auto factor0 = hn::BitCast(narrow, hn::Set(wide, 0xD2511F53U));
  const auto factor1 = hn::BitCast(narrow, hn::Set(wide, 0xCD9E8D57U));
  HWY_ALIGN std::uint64_t parts[4][8];
  for (; done + lanes <= count; done += lanes) {
    const auto block = hn::Add(hn::Set(wide, first + done), hn::Iota(wide, 0));
    auto c0 = hn::And(block, low_half);
    auto c1 = hn::ShiftRight<32>(block);
    auto c2 = hn::Set(wide, rank);
    auto c3 = hn::Zero(wide);
    std::uint32_t key0 = key[0];
    std::uint32_t key1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const auto product0 = hn::MulEven(factor0, hn::BitCast(narrow, c0));
      const auto product1 = hn::MulEven(factor1, hn::BitCast(narrow, c2));
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(wide, key0));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(wide, key1));
      c1 = hn::And(product1, low_half);
      c3 = hn::And(product0, low_half);
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    hn::Store(c0, wide, parts[0]);
    hn::Store(c1, wide, parts[1]);
    hn::Store(c2, wide, parts[2]);
    hn::Store(c3, wide, parts[3]);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (const auto& part : parts) *words++ = static_cast<std::uint32_t>(part[lane]);
    }
  }
#endif
  return done;
}

}  // namespace starling::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(many_blocks);

void philox_blocks(std::uint64_t first, std::size_t count, std::uint32_t rank, std::array<std::uint32_t, 2> key, std::uint32_t* words) {
  for (std::size_t i = HWY_DYNAMIC_DISPATCH(many_blocks)(first, count, rank, key, words); i < count; ++i) {
    const std::uint64_t block = first + i;
    const std::array<std::uint32_t, 4> last =
        philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), rank, 0}, key);
    for (std::size_t word = 0; word < last.size(); ++word) words[i * last.size() + word] = last[word];
  }
}

}  // namespace starling
#endif
