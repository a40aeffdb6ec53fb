// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/gradient_server.h"

#include <utility>

namespace starling::strategy {

GradientServer::GradientServer(Context context) : ParameterServer(std::move(context)) {
  if (is_server()) optimiser_.emplace(this->context(), part_layout());
}

Status GradientServer::exchange(const Step& step) {
  if (step.samples == 0) return {};
  const params::UpdateId id = context().account.produced();
  endpoint().pass("push");
  if (step.finite) return push_and_pull(id, step.gradient, step, step.weights);
  context().account.dropped(id, ledger::kNotFinite);
  return pull(step.weights);
}

void GradientServer::step(const Update& update, std::span<const float> gradient, std::span<float> weights) {
  optimiser_->step(weights, gradient, update.lr, update.first_stage);
}

void GradientServer::list_server_state(params::StateList& state) {
  state.within("optimizer", [&](params::StateList& inner) { optimiser_->list_state(inner); });
}

}  // namespace starling::strategy
