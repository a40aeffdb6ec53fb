// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Halting where ranks live in several processes. Nobody can know how far the others are without asking them. So workers that are in step
// with each other ask all of themselves, at steps that all of them know, whether anybody wants to halt, and what comes out tells them
// all when to ask again: about ten times a second. Who is not in step with a worker gets a signal from it, and halts where it stands.
#pragma once

#include <cstdint>
#include <vector>

#include "starling/fabric/endpoint.h"
#include "starling/run/halting.h"
#include "starling/run/signals.h"

namespace starling::run {

// Of one rank, and used by it alone.
class SpreadHalting final : public Halting {
 public:
  // `in_step` are the ranks that are in step with this one, itself included, alike at all of them; `others` who else has to halt. Endpoint
  // and signals must outlive it. `stretch` is the number of the stretch that begins.
  SpreadHalting(fabric::Endpoint& endpoint, Signals& signals, std::vector<fabric::Rank> in_step, std::vector<fabric::Rank> others,
                std::uint64_t stretch);

  Result<bool> may_begin(std::uint64_t step) override;
  void halt() override;
  // The next stretch.
  void open() override;

 private:
  Result<bool> ask_all(std::uint64_t step);

  fabric::Endpoint& endpoint_;
  Signals& signals_;
  fabric::Group in_step_;
  std::vector<fabric::Rank> others_;
  std::uint64_t stretch_;
  bool wanted_ = false;         // By this rank.
  bool halted_ = false;         // All of those in step.
  std::uint64_t asked_at_ = 0;  // The step; 0 before the first of the stretch.
  std::uint64_t interval_ = 1;  // Steps from there to the next question.
  Time asked_time_ = Time::zero();
};

}  // namespace starling::run
