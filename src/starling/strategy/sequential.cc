// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One worker, no exchange: what all others are compared with.
#include <algorithm>

#include "starling/strategy/methods.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {
namespace {

class Sequential final : public Strategy {
 public:
  explicit Sequential(Context context) : Strategy(std::move(context)), optimiser_(this->context(), parameters_of(this->context().layout)) {}

  Status start(std::span<float> /*weights*/, std::span<const float> /*model*/) override { return {}; }

  Status exchange(const Step& step) override {
    if (step.samples == 0) return {};
    const params::UpdateId id = context().account.produced();
    if (!step.finite) {
      context().account.dropped(id, ledger::kNotFinite);
      return {};
    }
    optimiser_.step(step.weights, step.gradient, step.lr, step.first_stage);
    context().account.applied_fresh(id);
    return {};
  }

  Status finish(std::span<float> weights, std::span<float> model) override { return peek(weights, model); }

  void list_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
  }

 private:
  RunOptimiser optimiser_;
};

}  // namespace

Description describe_sequential() {
  Description description;
  description.name = "sequential";
  description.summary = "one worker, no communication: what the others are compared with";
  description.rule = "worker   g = gradient at w; w = optimizer step with g";
  description.traffic = "none";
  description.paper = "Robbins and Monro 1951.";
  description.sends = Sends::nothing;
  description.places = Places::workers;
  description.one_worker_only = true;
  description.lockstep = true;
  description.make = [](Context context) { return std::make_unique<Sequential>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
