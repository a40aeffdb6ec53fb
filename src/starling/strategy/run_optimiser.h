// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The run's optimiser, wherever a strategy puts it: on every worker, or on a server for its part of the weights.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "starling/optim/optimiser.h"
#include "starling/optim/two_stage.h"
#include "starling/params/state.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

// True for codecs that correct momentum themselves (DGC), so that the optimiser must not.
bool codec_has_momentum(const std::string& codec);

class RunOptimiser {
 public:
  // For vectors of this layout. Where the codec has the momentum (DGC), the optimiser has none.
  RunOptimiser(const Context& context, const params::Layout& layout);

  void step(std::span<float> weights, std::span<const float> gradient, double lr, bool first_stage);

  // Moves the weights as step() does and adds the difference to `delta`. The difference is what the rule takes off, exactly, where the rule
  // does not look at the weights (no weight decay, not LARS); otherwise it is rounded.
  void step_and_add_delta(std::span<float> weights, std::span<const float> gradient, double lr, bool first_stage, std::span<float> delta);

  // The step's difference alone: weights + difference are what step() makes of them, with the same exception. The weights stay as they
  // are.
  void difference(std::span<const float> weights, std::span<const float> gradient, double lr, bool first_stage,
                  std::span<float> difference);

  // All state as at the beginning.
  void reset();

  void list_state(params::StateList& state);

 private:
  std::unique_ptr<optim::Optimiser> optimiser_;
  optim::TwoStage* two_stage_ = nullptr;  // The optimiser, if it is that.
  std::uint64_t steps_ = 0;               // Of the optimiser, when the state was last listed,
  bool listed_ = false;                   // if that was after the last step.
  bool looks_at_weights_;
  std::vector<float> difference_;
};

}  // namespace starling::strategy
