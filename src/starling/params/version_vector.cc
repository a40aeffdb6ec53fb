// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/params/version_vector.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "starling/base/error.h"

namespace starling::params {

// Range ends are compared by `first - 1 == last`, never `last + 1 == first`: the last number there is has no successor.
bool NumberSet::insert(std::uint64_t number) {
  STARLING_CHECK(number >= 1, std::string("updates are numbered from 1"));
  if (number <= prefix_) return false;
  if (number - 1 == prefix_) {
    prefix_ = number;
    if (!beyond_.empty() && beyond_.front().first - 1 == prefix_) {
      prefix_ = beyond_.front().last;
      beyond_.erase(beyond_.begin());
    }
    return true;
  }
  // The first range that ends at or after the number; only it and the one before can hold or touch it.
  const auto next = std::ranges::lower_bound(beyond_, number, {}, &Range::last);
  if (next != beyond_.end() && next->first <= number) return false;
  const bool touches_next = next != beyond_.end() && next->first - 1 == number;
  const bool touches_previous = next != beyond_.begin() && number - 1 == std::prev(next)->last;
  if (touches_previous) {
    std::prev(next)->last = touches_next ? next->last : number;
    if (touches_next) beyond_.erase(next);
  } else if (touches_next) {
    next->first = number;
  } else {
    beyond_.insert(next, {.first = number, .last = number});
  }
  return true;
}

bool NumberSet::contains(std::uint64_t number) const {
  if (number <= prefix_) return number >= 1;
  const auto range = std::ranges::lower_bound(beyond_, number, {}, &Range::last);
  return range != beyond_.end() && range->first <= number;
}

std::uint64_t NumberSet::size() const {
  std::uint64_t sum = prefix_;
  for (const Range& range : beyond_) sum += range.last - range.first + 1;
  return sum;
}

std::uint64_t NumberSet::largest() const { return beyond_.empty() ? prefix_ : beyond_.back().last; }

std::vector<NumberSet::Range> NumberSet::ranges() const {
  std::vector<Range> all;
  all.reserve(beyond_.size() + 1);
  if (prefix_ > 0) all.push_back({.first = 1, .last = prefix_});
  all.insert(all.end(), beyond_.begin(), beyond_.end());
  return all;
}

std::uint64_t distance(const NumberSet& a, const NumberSet& b) {
  if (a.is_prefix() && b.is_prefix()) return a.prefix_ > b.prefix_ ? a.prefix_ - b.prefix_ : b.prefix_ - a.prefix_;
  // An empty prefix is the range 1 … 0, which has nothing in common with any other.
  const auto range = [](const NumberSet& set, std::size_t index) {
    return index == 0 ? NumberSet::Range{.first = 1, .last = set.prefix_} : set.beyond_[index - 1];
  };
  std::uint64_t common = 0;
  for (std::size_t i = 0, j = 0; i <= a.beyond_.size() && j <= b.beyond_.size();) {
    const NumberSet::Range left = range(a, i);
    const NumberSet::Range right = range(b, j);
    const std::uint64_t first = std::max(left.first, right.first);
    const std::uint64_t last = std::min(left.last, right.last);
    if (first <= last) common += last - first + 1;
    ++(left.last < right.last ? i : j);
  }
  return a.size() + b.size() - 2 * common;
}

std::uint64_t VersionVector::size() const {
  std::uint64_t sum = 0;
  for (const NumberSet& set : sets_) sum += set.size();
  return sum;
}

// The number of origins, the number of those with gaps, every origin's prefix; then for each with gaps: the origin, the number of its
// ranges beyond the gap, and their ends. So it is two words and one per origin where nothing was dropped.
void VersionVector::write(std::vector<std::uint64_t>& words) const {
  words.push_back(sets_.size());
  words.push_back(static_cast<std::uint64_t>(std::ranges::count_if(sets_, [](const NumberSet& set) { return !set.is_prefix(); })));
  for (const NumberSet& set : sets_) words.push_back(set.prefix_);
  for (std::size_t origin = 0; origin < sets_.size(); ++origin) {
    const NumberSet& set = sets_[origin];
    if (set.is_prefix()) continue;
    words.push_back(origin);
    words.push_back(set.beyond_.size());
    for (const NumberSet::Range& range : set.beyond_) {
      words.push_back(range.first);
      words.push_back(range.last);
    }
  }
}

std::optional<VersionVector> VersionVector::read(std::span<const std::uint64_t>& words) {
  if (words.size() < 2) return std::nullopt;
  const std::uint64_t origins = words[0];
  const std::uint64_t with_gaps = words[1];
  std::span<const std::uint64_t> rest = words.subspan(2);
  if (origins > rest.size() || with_gaps > origins) return std::nullopt;  // Before memory is set aside for them.
  VersionVector vector;
  vector.sets_.reserve(origins);
  for (std::size_t origin = 0; origin < origins; ++origin) vector.sets_.emplace_back(rest[origin]);
  rest = rest.subspan(origins);

  std::uint64_t next_origin = 0;
  for (std::uint64_t entry = 0; entry < with_gaps; ++entry) {
    if (rest.size() < 2 || rest[0] < next_origin || rest[0] >= origins) return std::nullopt;
    NumberSet& set = vector.sets_[rest[0]];
    next_origin = rest[0] + 1;
    const std::uint64_t ranges = rest[1];
    rest = rest.subspan(2);
    if (ranges == 0 || ranges > rest.size() / 2) return std::nullopt;
    set.beyond_.reserve(ranges);
    std::uint64_t before = set.prefix_;
    for (std::uint64_t index = 0; index < ranges; ++index) {
      const NumberSet::Range range{.first = rest[2 * index], .last = rest[2 * index + 1]};
      const bool after_a_gap = range.first > before && range.first - before >= 2;
      if (!after_a_gap || range.last < range.first) return std::nullopt;
      set.beyond_.push_back(range);
      before = range.last;
    }
    rest = rest.subspan(2 * ranges);
  }
  words = rest;
  return vector;
}

std::uint64_t distance(const VersionVector& a, const VersionVector& b) {
  const NumberSet nothing;
  std::uint64_t sum = 0;
  for (int origin = 0; origin < std::max(a.origins(), b.origins()); ++origin) {
    sum += distance(origin < a.origins() ? a[origin] : nothing, origin < b.origins() ? b[origin] : nothing);
  }
  return sum;
}

}  // namespace starling::params
