// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Brings the workers of a run to a halt between two steps: for a checkpoint, or because the run was interrupted. Workers that wait for each
// other in every step must all halt after the same one.
//
//   while (halting.may_begin(next_step)) { ... }
//   halting.halt();       // By whoever wants it; the others come to a halt at the next step they may not begin.
//   halting.open();       // All have halted, and a new stretch begins.
#pragma once

#include <cstdint>

#include "starling/base/result.h"
#include "starling/run/step_gate.h"

namespace starling::run {

class Halting {
 public:
  virtual ~Halting() = default;

  // Asked by a worker before each of its steps, or by whoever deals out batches before each batch.
  virtual Result<bool> may_begin(std::uint64_t step) = 0;
  virtual void halt() = 0;
  virtual void open() = 0;
};

// Where all workers see the same memory: a gate for all of them. Thread-safe.
class SharedHalting final : public Halting {
 public:
  explicit SharedHalting(bool lockstep) : gate_(lockstep) {}

  Result<bool> may_begin(std::uint64_t step) override { return gate_.may_begin(step); }
  void halt() override { gate_.halt(); }
  void open() override { gate_.open(); }

 private:
  StepGate gate_;
};

}  // namespace starling::run
