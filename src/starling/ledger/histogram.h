// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How often each value occurred, exactly. Made for values that are mostly small, such as staleness: those cost one addition and take
// memory only when a new largest one comes.
//
//   Histogram staleness;
//   staleness.add(3);
//   staleness.quantile(0.95);
//
// A value type. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace starling::ledger {

class Histogram {
 public:
  void add(std::uint64_t value, std::uint64_t times = 1);
  void add(const Histogram& other);

  std::uint64_t count() const { return count_; }
  double mean() const;                            // 0 if empty.
  std::uint64_t quantile(double fraction) const;  // The smallest value that so many do not exceed: nearest rank. 0 if empty.
  std::uint64_t max() const;                      // 0 if empty.
  // Value and how often, ascending, for files and plots.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> entries() const;

  // Equal if the same values were added, in whatever order.
  bool operator==(const Histogram&) const = default;

 private:
  static constexpr std::uint64_t kSmall = 4096;

  std::vector<std::uint64_t> counts_{};             // Of values below kSmall, by value; the last one is not 0.
  std::map<std::uint64_t, std::uint64_t> large_{};  // Of the rest; none is 0.
  std::uint64_t count_ = 0;
};

}  // namespace starling::ledger
