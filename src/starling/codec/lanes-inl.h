// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels share. Included once per instruction set, inside Highway's machinery.
#if defined(STARLING_CODEC_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_CODEC_LANES_INL_H_
#undef STARLING_CODEC_LANES_INL_H_
#else
#define STARLING_CODEC_LANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Kernels that add up, or make bits of comparisons, work on groups of eight floats: one vector with AVX2 and up, two with SSE. So their
// results do not depend on the vectors of the machine.
using Tag = hn::CappedTag<float, 8>;
using Vector = hn::Vec<Tag>;
inline constexpr Tag kTag{};
inline constexpr std::size_t kGroup = 8;
inline constexpr std::size_t kLanes = hn::MaxLanes(Tag());
inline constexpr std::size_t kVectors = kGroup / kLanes;

using One = hn::CappedTag<float, 1>;  // For what remains after the last full vector.
inline constexpr One kOne{};

// Bit i is lane i of the mask, the mask being vector `vector` of its group.
template <class Mask>
HWY_INLINE std::uint32_t group_bits(Mask mask, std::size_t vector) {
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(kTag, mask, bits);
  return static_cast<std::uint32_t>(bits[0]) << (vector * kLanes);
}

// The inverse: the lanes whose bits are set in the word, from bit `first` on.
HWY_INLINE hn::Mask<Tag> bit_mask(std::uint32_t word, std::size_t first) {
  alignas(64) static constexpr std::uint32_t kBits[32] = {
      1U << 0U,  1U << 1U,  1U << 2U,  1U << 3U,  1U << 4U,  1U << 5U,  1U << 6U,  1U << 7U,  1U << 8U,  1U << 9U,  1U << 10U,
      1U << 11U, 1U << 12U, 1U << 13U, 1U << 14U, 1U << 15U, 1U << 16U, 1U << 17U, 1U << 18U, 1U << 19U, 1U << 20U, 1U << 21U,
      1U << 22U, 1U << 23U, 1U << 24U, 1U << 25U, 1U << 26U, 1U << 27U, 1U << 28U, 1U << 29U, 1U << 30U, 1U << 31U};
  const hn::RebindToUnsigned<Tag> words;
  return hn::RebindMask(kTag, hn::TestBit(hn::Set(words, word), hn::Load(words, kBits + first)));
}

// Sums of eight lanes are added up in this order, whatever the vectors.
HWY_INLINE float sum_of_group(const Vector (&sums)[kVectors]) {
  alignas(32) float lanes[kGroup];
  for (std::size_t v = 0; v < kVectors; ++v) hn::Store(sums[v], kTag, lanes + v * kLanes);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// Copies a finished piece from the cache to where it belongs. With `stream` it goes past the caches, which saves reading the lines that are
// written: whoever asks for it calls hwy::FlushStream() after the last piece.
inline void deliver(void* to, const void* from, std::size_t bytes, bool stream) {
  auto* target = static_cast<std::uint8_t*>(to);
  const auto* source = static_cast<const std::uint8_t*>(from);
  const hn::CappedTag<std::uint8_t, 16> tag;
  const std::size_t step = hn::Lanes(tag);
  const std::size_t head = (step - reinterpret_cast<std::uintptr_t>(target) % step) % step;
  if (!stream || bytes < head) {
    std::memcpy(target, source, bytes);
    return;
  }
  if (head > 0) std::memcpy(target, source, head);
  std::size_t i = head;
  HWY_UNROLL(8)
  for (; i + step <= bytes; i += step) hn::Stream(hn::LoadU(tag, source + i), tag, target + i);
  if (i < bytes) std::memcpy(target + i, source + i, bytes - i);
}

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
