// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/run_optimiser.h"

#include <algorithm>

#include "starling/base/floats.h"

namespace starling::strategy {

bool codec_has_momentum(const std::string& codec) { return codec == "dgc" || codec.starts_with("dgc:"); }

RunOptimiser::RunOptimiser(const Context& context, const params::Layout& layout)
    : looks_at_weights_(context.optimiser.weight_decay != 0 || context.optimiser.name == "lars") {
  optim::OptimiserOptions options = context.optimiser;
  if (codec_has_momentum(context.codec)) options.name = "sgd";
  if (context.two_stage) {
    auto both = std::make_unique<optim::TwoStage>(options, layout);
    two_stage_ = both.get();
    optimiser_ = std::move(both);
  } else {
    optimiser_ = optim::make_optimiser(options, layout);
  }
}

void RunOptimiser::step(std::span<float> weights, std::span<const float> gradient, double lr, bool first_stage) {
  if (listed_) optimiser_->set_steps(steps_);  // Whoever asked for the state may have written it.
  listed_ = false;
  if (two_stage_ != nullptr) two_stage_->set_first_stage(first_stage);
  optimiser_->step(weights, gradient, lr);
}

void RunOptimiser::step_and_add_delta(std::span<float> weights, std::span<const float> gradient, double lr, bool first_stage,
                                      std::span<float> delta) {
  difference_.resize(weights.size());
  if (looks_at_weights_) {
    std::copy(weights.begin(), weights.end(), difference_.begin());
    step(weights, gradient, lr, first_stage);
    subtract_floats(difference_, weights, difference_);
  } else {
    difference(weights, gradient, lr, first_stage, difference_);
    add_floats(weights, difference_);
  }
  add_floats(delta, difference_);
}

void RunOptimiser::difference(std::span<const float> weights, std::span<const float> gradient, double lr, bool first_stage,
                              std::span<float> difference) {
  if (looks_at_weights_) {
    std::copy(weights.begin(), weights.end(), difference.begin());
    step(difference, gradient, lr, first_stage);
    subtract_floats(difference, difference, weights);
  } else {
    std::fill(difference.begin(), difference.end(), 0.0F);
    step(difference, gradient, lr, first_stage);
  }
}

void RunOptimiser::reset() {
  listed_ = false;
  optimiser_->set_steps(0);
  for (const optim::Optimiser::State& vector : optimiser_->state()) std::fill(vector.values.begin(), vector.values.end(), 0.0F);
}

void RunOptimiser::list_state(params::StateList& state) {
  if (!listed_) steps_ = optimiser_->steps();
  listed_ = true;
  for (const optim::Optimiser::State& vector : optimiser_->state()) state.add(vector.name, vector.values);
  state.add("steps", steps_);
}

}  // namespace starling::strategy
