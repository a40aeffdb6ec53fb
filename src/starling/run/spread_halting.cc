// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/spread_halting.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "starling/collective/collective.h"

namespace starling::run {
namespace {

// Keeps the question apart from the collectives of strategies.
constexpr std::uint16_t kContext = 0xff01;

constexpr double kSecondsBetween = 0.1;
constexpr double kMostSteps = 1000;

}  // namespace

SpreadHalting::SpreadHalting(fabric::Endpoint& endpoint, Signals& signals, std::vector<fabric::Rank> in_step,
                             std::vector<fabric::Rank> others, std::uint64_t stretch)
    : endpoint_(endpoint), signals_(signals), in_step_(std::move(in_step), kContext), others_(std::move(others)), stretch_(stretch) {}

Result<bool> SpreadHalting::may_begin(std::uint64_t step) {
  if (halted_) return false;
  if (in_step_.size() == 1) {
    halted_ = wanted_ || signals_.told_to_halt(stretch_);
    return !halted_;
  }
  if (asked_at_ == 0) {  // Nothing to measure yet, and the same at all of them.
    asked_at_ = step;
    asked_time_ = endpoint_.now();
    interval_ = 1;
  }
  if (step < asked_at_ + interval_) return true;
  return ask_all(step);
}

Result<bool> SpreadHalting::ask_all(std::uint64_t step) {
  const Time now = endpoint_.now();
  const bool wants = wanted_ || signals_.told_to_halt(stretch_);
  std::array<float, 2> sums{wants ? 1.0F : 0.0F, static_cast<float>(to_seconds(now - asked_time_) / static_cast<double>(step - asked_at_))};
  STARLING_TRY(collective::all_reduce(endpoint_, in_step_, sums));
  if (sums[0] > 0) {
    halted_ = true;
    return false;
  }
  asked_at_ = step;
  asked_time_ = endpoint_.now();
  const double step_seconds = std::max(static_cast<double>(sums[1]) / in_step_.size(), kSecondsBetween / kMostSteps);
  // From the sums alone, which all have alike. Never much longer than the last time, because steps may become slower.
  const double steps = std::min({kSecondsBetween / step_seconds, kMostSteps, 2.0 * static_cast<double>(interval_)});
  interval_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(steps));
  return true;
}

void SpreadHalting::halt() {
  if (std::exchange(wanted_, true)) return;
  signals_.tell_to_halt(others_, stretch_);
}

void SpreadHalting::open() {
  ++stretch_;
  wanted_ = halted_ = false;
  asked_at_ = 0;
}

}  // namespace starling::run
