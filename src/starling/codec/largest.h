// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The k components of largest magnitude, exactly: ties go to the lower index. A sample guesses a bound that slightly more than k reach, one
// pass collects those, and the k are chosen among them. A guess that fails (most values equal, say) costs time only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace starling::codec {

// Not thread-safe: it keeps its memory from one call to the next.
class LargestComponents {
 public:
  // Ascending indices, good until the next call. k is at most values.size(), which is below 2^32 (both checked).
  std::span<const std::uint32_t> find(std::span<const float> values, std::size_t k);

 private:
  float guess(std::span<const float> values, std::size_t k, std::size_t& expected);
  void choose_among_candidates(std::span<const float> values, std::size_t k);
  void choose_among_all(std::span<const float> values, std::size_t k);

  std::vector<std::uint32_t> indices_;
  std::vector<std::uint32_t> magnitudes_;
  std::vector<std::size_t> histogram_;
};

// How many components of `count` a ratio means: to the nearest, at least one if there are any.
std::size_t components_of(double ratio, std::size_t count);

}  // namespace starling::codec
