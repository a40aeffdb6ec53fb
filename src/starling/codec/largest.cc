// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/codec/largest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "starling/base/error.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/largest.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

// Writes the indices of those whose magnitude is at least `bound`, in order; stops where there is no room for 64 more. Returns how many, or
// room + 1 if it has stopped.
std::size_t collect(const float* values, std::size_t count, float bound, std::uint32_t* indices, std::size_t room) {
  const auto limit = hn::Set(kTag, bound);
  std::size_t found = 0;
  std::size_t begin = 0;
  for (; begin + 64 <= count; begin += 64) {
    std::uint64_t reached = 0;
    for (std::size_t i = 0; i < 64; i += kLanes) {
      const auto mask = hn::Ge(hn::Abs(hn::LoadU(kTag, values + begin + i)), limit);
      reached |= static_cast<std::uint64_t>(group_bits(mask, 0)) << i;
    }
    if (room - found < 64) return room + 1;
    for (; reached != 0; reached &= reached - 1)
      indices[found++] = static_cast<std::uint32_t>(begin + static_cast<std::size_t>(std::countr_zero(reached)));
  }
  if (room - found < 64) return room + 1;
  for (; begin < count; ++begin) {
    if (std::fabs(values[begin]) >= bound) indices[found++] = static_cast<std::uint32_t>(begin);
  }
  return found;
}

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::codec {
namespace {

HWY_EXPORT(collect);

constexpr std::size_t kBins = std::size_t{1} << 16U;

// The order of magnitudes is that of these bits.
std::uint32_t magnitude_bits(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }

// Where the k-th largest of the counted values lies, counting down from the last bin; k becomes its rank within that bin.
std::size_t bin_of(std::span<const std::size_t> histogram, std::size_t& k) {
  std::size_t bin = histogram.size() - 1;
  while (bin > 0 && histogram[bin] < k) k -= histogram[bin--];
  return bin;
}

}  // namespace

std::span<const std::uint32_t> LargestComponents::find(std::span<const float> values, std::size_t k) {
  STARLING_CHECK(k <= values.size() && values.size() <= std::numeric_limits<std::uint32_t>::max(),
                 fmt::format("the {} largest of {} components", k, values.size()));
  if (k == values.size()) {
    indices_.resize(k);
    std::iota(indices_.begin(), indices_.end(), 0U);
    return indices_;
  }
  std::size_t expected = 0;
  const float bound = guess(values, k, expected);
  const std::size_t room = std::min(values.size(), 2 * expected) + 64;
  // All at the first call, so that later ones do not allocate.
  magnitudes_.reserve(room);
  histogram_.reserve(kBins);
  indices_.resize(room);
  const std::size_t found = HWY_DYNAMIC_DISPATCH(collect)(values.data(), values.size(), bound, indices_.data(), room);
  if (found >= k && found <= room) {
    indices_.resize(found);
    choose_among_candidates(values, k);
  } else {
    choose_among_all(values, k);
  }
  return indices_;
}

// A sample of one in a hundred, one from each stretch of equal length, at a place in it that no regular pattern of the values follows.
float LargestComponents::guess(std::span<const float> values, std::size_t k, std::size_t& expected) {
  constexpr std::size_t kLeast = 4096;
  const std::size_t samples = std::clamp(values.size() / 100, std::min(kLeast, values.size()), values.size());
  const std::size_t stretch = values.size() / samples;
  magnitudes_.resize(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    const std::uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15U >> 33U;
    magnitudes_[i] = magnitude_bits(values[i * stretch + mixed % stretch]);
  }
  // Four deviations more than the expected number in the sample, so that fewer than k are almost never found.
  const double share = static_cast<double>(k) / static_cast<double>(values.size()) * static_cast<double>(samples);
  const std::size_t rank = std::min(samples - 1, static_cast<std::size_t>(share + 4 * std::sqrt(share) + 4));
  expected =
      static_cast<std::size_t>(static_cast<double>(rank + 1) / static_cast<double>(samples) * static_cast<double>(values.size())) + 1024;
  const auto at = magnitudes_.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(magnitudes_.begin(), at, magnitudes_.end(), std::greater<>());
  return std::bit_cast<float>(*at);
}

void LargestComponents::choose_among_candidates(std::span<const float> values, std::size_t k) {
  if (k == 0 || indices_.size() == k) {
    indices_.resize(k);
    return;
  }
  magnitudes_.resize(indices_.size());
  for (std::size_t i = 0; i < indices_.size(); ++i) magnitudes_[i] = magnitude_bits(values[indices_[i]]);
  const auto at = magnitudes_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(magnitudes_.begin(), at, magnitudes_.end(), std::greater<>());
  const std::uint32_t least = *at;
  const auto above = static_cast<std::size_t>(std::count_if(magnitudes_.begin(), at, [&](std::uint32_t bits) { return bits > least; }));
  std::size_t ties = k - above;
  std::size_t kept = 0;
  for (const std::uint32_t index : indices_) {
    const std::uint32_t bits = magnitude_bits(values[index]);
    if (bits > least || (bits == least && ties > 0)) {
      if (bits == least) --ties;
      indices_[kept++] = index;
    }
  }
  indices_.resize(kept);
}

// Finds the k-th largest magnitude from its upper and then its lower half: two histograms, whatever the values.
void LargestComponents::choose_among_all(std::span<const float> values, std::size_t k) {
  indices_.resize(k);
  if (k == 0) return;
  std::size_t rank = k;
  histogram_.assign(kBins, 0);
  for (const float value : values) ++histogram_[magnitude_bits(value) >> 16U];
  const std::size_t upper = bin_of(histogram_, rank);
  histogram_.assign(kBins, 0);
  for (const float value : values) {
    const std::uint32_t bits = magnitude_bits(value);
    if (bits >> 16U == upper) ++histogram_[bits & 0xffffU];
  }
  const auto least = static_cast<std::uint32_t>(upper << 16U | bin_of(histogram_, rank));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < values.size() && kept < k; ++i) {
    const std::uint32_t bits = magnitude_bits(values[i]);
    if (bits < least || (bits == least && rank == 0)) continue;
    if (bits == least) --rank;
    indices_[kept++] = static_cast<std::uint32_t>(i);
  }
}

std::size_t components_of(double ratio, std::size_t count) {
  if (count == 0) return 0;
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::floor(ratio * static_cast<double>(count) + 0.5)), 1, count);
}

}  // namespace starling::codec
#endif
