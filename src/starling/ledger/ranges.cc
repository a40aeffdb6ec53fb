// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/ledger/ranges.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace starling::ledger {

using Range = params::NumberSet::Range;

Ranges in_both(const Ranges& a, const Ranges& b) {
  Ranges result;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const std::uint64_t first = std::max(a[i].first, b[j].first);
    const std::uint64_t last = std::min(a[i].last, b[j].last);
    if (first <= last) result.push_back({first, last});
    if (a[i].last < b[j].last) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

Ranges in_either(const Ranges& a, const Ranges& b) {
  Ranges sorted;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(sorted),
             [](const Range& left, const Range& right) { return left.first < right.first; });
  Ranges result;
  for (const Range& range : sorted) {
    // first - 1 and not last + 1: numbers begin at 1, but may be as large as there are.
    if (!result.empty() && range.first - 1 <= result.back().last) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

Ranges without(const Ranges& a, const Ranges& b) {
  Ranges result;
  std::size_t j = 0;
  for (Range range : a) {
    while (j < b.size() && b[j].last < range.first) ++j;
    std::size_t k = j;
    bool left = true;
    for (; k < b.size() && b[k].first <= range.last; ++k) {
      if (b[k].first > range.first) result.push_back({range.first, b[k].first - 1});
      left = b[k].last < range.last;
      if (!left) break;
      range.first = b[k].last + 1;
    }
    if (left) result.push_back(range);
  }
  return result;
}

std::uint64_t count(const Ranges& ranges) {
  std::uint64_t sum = 0;
  for (const Range& range : ranges) sum += range.last - range.first + 1;
  return sum;
}

}  // namespace starling::ledger
