// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Brings the workers of one process to a halt between two steps: for a checkpoint, or because the run was interrupted. Workers that wait
// for each other in every step must all halt after the same one.
//
//   while (gate.may_begin(next_step)) { ... }
//   gate.halt();          // From any worker; the others come to a halt at the next step they may not begin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>

namespace starling::run {

// Thread-safe. The lock is taken once per step.
class StepGate {
 public:
  // In lockstep, all halt after the same step: the latest that any of them has begun.
  explicit StepGate(bool lockstep) : lockstep_(lockstep) {}

  bool may_begin(std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    if (step >= limit_) return false;
    latest_ = std::max(latest_, step);
    return true;
  }

  void halt() {
    const std::lock_guard lock(mutex_);
    limit_ = lockstep_ ? std::min(limit_, latest_ + 1) : 0;
  }

  // After all have halted.
  void open() {
    const std::lock_guard lock(mutex_);
    limit_ = kNever;
  }

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  const bool lockstep_;
  std::mutex mutex_;
  std::uint64_t latest_ = 0;
  std::uint64_t limit_ = kNever;
};

}  // namespace starling::run
