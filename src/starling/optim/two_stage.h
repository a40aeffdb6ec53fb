// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Plain SGD during the warm-up, then the run's optimiser, whose state starts at the switch (see ScheduleOptions::two_stage).
//
//   TwoStage optimiser({.name = "adam"}, layout);
//   optimiser.set_first_stage(schedule.first_stage(epoch));   // Before every step; a function of progress, so nothing more to save.
//   optimiser.step(weights, gradient, schedule.lr(epoch));
#pragma once

#include "starling/optim/optimiser.h"

namespace starling::optim {

// Thread-safety and failures as for Optimiser. Clipping and weight decay hold in both stages. state(), steps() and options() are those of
// the second stage: the first has no state.
class TwoStage final : public Optimiser {
 public:
  TwoStage(const OptimiserOptions& options, const params::Layout& layout);

  // Which stage the next steps belong to; the first until told otherwise.
  void set_first_stage(bool first) { in_first_ = first; }

  void step(std::span<float> weights, std::span<const float> gradient, double lr) override;
  std::vector<State> state() override { return second_->state(); }
  std::uint64_t steps() const override { return second_->steps(); }
  void set_steps(std::uint64_t steps) override { second_->set_steps(steps); }
  const OptimiserOptions& options() const override { return second_->options(); }

 private:
  std::unique_ptr<Optimiser> first_;
  std::unique_ptr<Optimiser> second_;
  bool in_first_ = true;
};

}  // namespace starling::optim
