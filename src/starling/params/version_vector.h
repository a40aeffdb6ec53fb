// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The names of updates, and which of them some weights contain.
//
// Every update has an identity: the rank it comes from and its number there, 1, 2, 3, … . A VersionVector says which updates a copy of
// the weights contains, exactly, also where some were dropped on the way. Where everything arrives in order it is one number per origin.
//
//   VersionVector at_compute = ...;                        // Travels with the gradient, in its Stamp.
//   std::uint64_t staleness = distance(at_compute, here);  // |A Δ B|: updates in one but not in the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace starling::params {

struct UpdateId {
  int origin = -1;  // A rank; -1 where there is no update, only data.
  std::uint64_t number = 0;

  bool operator==(const UpdateId&) const = default;
};

// A set of numbers from 1 on. A value type; small and cheap where it is a prefix 1, …, n.
class NumberSet {
 public:
  // The inclusive range first … last; first >= 1, first <= last.
  struct Range {
    std::uint64_t first = 1;
    std::uint64_t last = 1;

    bool operator==(const Range&) const = default;
  };

  NumberSet() = default;
  explicit NumberSet(std::uint64_t prefix) : prefix_(prefix) {}

  // False if it was in the set already. Precondition (checked): number >= 1.
  bool insert(std::uint64_t number);
  bool contains(std::uint64_t number) const;

  std::uint64_t size() const;
  std::uint64_t prefix() const { return prefix_; }  // The largest n such that 1, …, n are all in the set.
  std::uint64_t largest() const;                    // 0 if empty.
  std::vector<Range> ranges() const;                // Ascending, not touching.
  bool is_prefix() const { return beyond_.empty(); }

  bool operator==(const NumberSet&) const = default;

 private:
  friend std::uint64_t distance(const NumberSet& a, const NumberSet& b);
  friend class VersionVector;

  std::uint64_t prefix_ = 0;
  std::vector<Range> beyond_{};  // What is in the set after a gap; ascending, not touching, the first not touching the prefix.
};

// The number of elements in one set but not in the other.
std::uint64_t distance(const NumberSet& a, const NumberSet& b);

// A NumberSet per origin. A value type.
class VersionVector {
 public:
  VersionVector() = default;
  explicit VersionVector(int origins) : sets_(static_cast<std::size_t>(origins)) {}

  int origins() const { return static_cast<int>(sets_.size()); }
  NumberSet& operator[](int origin) { return sets_[static_cast<std::size_t>(origin)]; }
  const NumberSet& operator[](int origin) const { return sets_[static_cast<std::size_t>(origin)]; }

  // How many updates it contains.
  std::uint64_t size() const;

  // Appends its form as words; read() takes it from the front of `words` and removes it there. Nothing if the words are no version vector.
  void write(std::vector<std::uint64_t>& words) const;
  static std::optional<VersionVector> read(std::span<const std::uint64_t>& words);

  bool operator==(const VersionVector&) const = default;

 private:
  std::vector<NumberSet> sets_{};
};

// Updates that are in one but not in the other, over all origins; origins that one of them does not have count as empty there.
std::uint64_t distance(const VersionVector& a, const VersionVector& b);

// What travels with an update, and with weights, so that the ledger can say how stale it was.
struct Stamp {
  UpdateId id{};
  std::uint64_t version =
      0;  // Of the weights: how many updates had been applied at their place. For an update: of those it was computed on.
  VersionVector contents{};  // The updates in those weights.
  double value = 0;          // Free for the sender; strategies say the learning rate here.

  bool operator==(const Stamp&) const = default;
};

}  // namespace starling::params
