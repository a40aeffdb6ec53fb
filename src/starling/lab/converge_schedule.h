// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Which blocks are updated at a step of an asynchronous iteration, S(k), and which values they read: the labels rho_j(k) < k. A label is a
// time: the value of block j that an update reads is the one block j had after step rho_j(k); after step 0 it has its initial value.
//
//   DrawnSchedule schedule({.blocks = 4, .choice = Choice::random, .delays = Delays::parse("bounded:8"), .seed = 1});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/random.h"

namespace starling::lab {

struct BlockUpdate {
  std::size_t block = 0;
  std::vector<std::uint64_t> labels{};  // One per block, each below the step.
};

// Steps are asked for in order, each once. Not thread-safe.
class Schedule {
 public:
  virtual ~Schedule() = default;

  // The updates of step k = 1, 2, … They happen at the same time: none reads what another of the same step computes.
  virtual std::vector<BlockUpdate> updates(std::uint64_t step) = 0;

  // No update at this step or later reads a value that was replaced at or before the returned time.
  virtual std::uint64_t oldest_label(std::uint64_t step) const = 0;
};

// How old a value may be. The value a block reads of itself is always its newest.
struct Delays {
  enum class Kind { none, bounded, growing };

  Kind kind = Kind::none;
  std::uint64_t most = 0;  // bounded: every label is at least k - 1 - most.
  double fraction = 0.5;   // growing: every label is at least k - 1 - fraction k, so it tends to infinity, but the delay has no bound.

  // Reads "none", "bounded:D" and "growing" or "growing:FRACTION"; throws UserError.
  static Delays parse(std::string_view text);
  std::string text() const;

  // The largest delay at a step.
  std::uint64_t limit(std::uint64_t step) const;
};

// all: every block at every step; cyclic: one, in turn; one: one, drawn; random: each with probability 1/2, but at least one.
enum class Choice { all, cyclic, one, random };

// Throws UserError for a name that is none of these.
Choice parse_choice(std::string_view name);
const char* to_string(Choice choice);

struct ScheduleOptions {
  std::size_t blocks = 4;
  Choice choice = Choice::random;
  Delays delays{};
  std::optional<std::size_t> idle_block{};  // Never updated.
  std::uint64_t seed = 1;
};

// Delays are drawn uniformly, for every update and every block that is read, from 0 to their limit.
class DrawnSchedule : public Schedule {
 public:
  // Throws UserError for an idle block that does not exist or is the only one.
  explicit DrawnSchedule(const ScheduleOptions& options);
  std::vector<BlockUpdate> updates(std::uint64_t step) override;
  std::uint64_t oldest_label(std::uint64_t step) const override;

 private:
  std::vector<std::size_t> choose(std::uint64_t step);

  ScheduleOptions options_;
  std::vector<std::size_t> active_;
  RandomStream choices_;
  RandomStream ages_;
};

}  // namespace starling::lab
