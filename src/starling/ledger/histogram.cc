// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/ledger/histogram.h"

#include <algorithm>
#include <cmath>

#include "starling/base/error.h"

namespace starling::ledger {

void Histogram::add(std::uint64_t value, std::uint64_t times) {
  if (times == 0) return;
  count_ += times;
  if (value >= kSmall) {
    large_[value] += times;
    return;
  }
  if (value >= counts_.size()) counts_.resize(static_cast<std::size_t>(value) + 1);
  counts_[static_cast<std::size_t>(value)] += times;
}

void Histogram::add(const Histogram& other) {
  const auto entries_of_other = other.entries();
  for (const auto& [value, times] : entries_of_other) add(value, times);
}

double Histogram::mean() const {
  if (count_ == 0) return 0;
  // Added up here, in the order of the values, and not in add(): so it does not depend on the order in which they came.
  double sum = 0;
  for (std::size_t value = 0; value < counts_.size(); ++value) sum += static_cast<double>(value) * static_cast<double>(counts_[value]);
  for (const auto& [value, times] : large_) sum += static_cast<double>(value) * static_cast<double>(times);
  return sum / static_cast<double>(count_);
}

std::uint64_t Histogram::quantile(double fraction) const {
  STARLING_CHECK(fraction >= 0 && fraction <= 1, "a quantile is for a fraction of 0 to 1");
  if (count_ == 0) return 0;
  // Decimal fractions are not exact: 0.07 × 100 is a little more than 7, and must not become 8.
  const double rank = std::ceil(fraction * static_cast<double>(count_) * (1 - 1e-12));
  const std::uint64_t wanted = std::clamp(static_cast<std::uint64_t>(rank), std::uint64_t{1}, count_);
  std::uint64_t seen = 0;
  for (std::size_t value = 0; value < counts_.size(); ++value) {
    seen += counts_[value];
    if (seen >= wanted) return value;
  }
  for (const auto& [value, times] : large_) {
    seen += times;
    if (seen >= wanted) return value;
  }
  return max();
}

std::uint64_t Histogram::max() const {
  if (!large_.empty()) return large_.rbegin()->first;
  return counts_.empty() ? 0 : counts_.size() - 1;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Histogram::entries() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> entries;
  for (std::size_t value = 0; value < counts_.size(); ++value) {
    if (counts_[value] > 0) entries.emplace_back(value, counts_[value]);
  }
  entries.insert(entries.end(), large_.begin(), large_.end());
  return entries;
}

}  // namespace starling::ledger
