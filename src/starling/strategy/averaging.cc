// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/averaging.h"

#include <algorithm>
#include <utility>

#include "starling/base/floats.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {

Averaging::Averaging(Context context, std::uint64_t period)
    : Strategy(std::move(context)),
      period_(period),
      workers_(this->context().roles.worker_group()),
      sum_(this->context()),
      optimiser_(this->context(), parameters_of(this->context().layout)) {
  if (sum_.coded()) base_.resize(this->context().layout.parameter_count());
}

Status Averaging::start(std::span<float> weights, std::span<const float> model) {
  if (steps_ % period_ == 0) {
    STARLING_TRY(collective::broadcast(endpoint(), workers_, weights));
    std::copy_n(weights.begin(), base_.size(), base_.begin());
  }
  (void)model;
  return {};
}

Status Averaging::exchange(const Step& step) {
  steps_ = step.number;
  if (step.share != 1 && weighs_batches()) scale_floats(step.gradient, static_cast<float>(step.share));
  if (step.samples > 0 && step.finite) optimiser_.step(step.weights, step.gradient, step.lr, step.first_stage);
  if (step.number % period_ != 0) return {};
  return average(round_of(step.number), step.epoch, step.weights);
}

Status Averaging::average(std::uint64_t round, double epoch, std::span<float> weights) {
  const params::UpdateId id = context().account.produced();
  endpoint().pass("push");
  const double share = share_of(rank(), round);
  if (sum_.coded()) {
    // A codec is for small things: differences from where the round began.
    subtract_floats(weights, weights, base_);
    if (share != 1) scale_floats(weights, static_cast<float>(share));
    STARLING_TRY(sum_.add_up(weights, epoch));
    add_floats(weights, base_);
    std::copy(weights.begin(), weights.end(), base_.begin());
  } else if (workers_.size() > 1) {
    scale_floats(weights, static_cast<float>(share));
    STARLING_TRY(sum_.add_up(weights, epoch));
  }
  for (int worker = 0; worker < workers_.size(); ++worker) context().account.applied_fresh({.origin = worker, .number = id.number});
  round_ended();
  return {};
}

// Replicas that are in the middle of a round go on from where they are; the result is what the average would be now.
Status Averaging::finish(std::span<float> weights, std::span<float> model) {
  std::copy(weights.begin(), weights.end(), model.begin());
  if (workers_.size() == 1 || steps_ % period_ == 0) return {};
  scale_floats(model, static_cast<float>(share_of(rank(), round_of(steps_))));
  return collective::all_reduce(endpoint(), workers_, model);
}

void Averaging::list_state(params::StateList& state) {
  state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
  sum_.list_state(state);
  if (!base_.empty()) state.add("base", base_);
  state.add("steps", steps_);
}

}  // namespace starling::strategy
