// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/delta_server.h"

#include <algorithm>
#include <utility>

#include "starling/base/floats.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {

DeltaServer::DeltaServer(Context context) : ParameterServer(std::move(context)) {
  if (is_server()) return;
  optimiser_.emplace(this->context(), parameters_of(this->context().layout));
  delta_ = std::make_shared<std::vector<float>>(parameter_count());
}

void DeltaServer::step_locally(const Step& step) {
  if (steps_++ == 0) id_ = context().account.produced();
  optimiser_->step_and_add_delta(step.weights, step.gradient, step.lr, step.first_stage, *delta_);
  last_ = step;
}

Status DeltaServer::push_delta(const Step& step, double factor, bool with_pull) {
  endpoint().pass("push");
  if (factor != 1) scale_floats(*delta_, static_cast<float>(factor));
  Status status = with_pull ? push_and_pull(id_, *delta_, step, step.weights, delta_) : push(id_, *delta_, step);
  std::fill(delta_->begin(), delta_->end(), 0.0F);
  steps_ = 0;
  return status;
}

Status DeltaServer::flush(std::span<const float> /*weights*/) { return steps_ == 0 ? Status{} : push_delta(last_, flush_factor(), false); }

void DeltaServer::apply(const Update& update, std::span<float> weights) {
  if (update.scale == 1) {
    add_floats(weights, update.values);
  } else {
    add_scaled_floats(weights, static_cast<float>(update.scale), update.values);
  }
}

void DeltaServer::list_worker_state(params::StateList& state) {
  state.within("optimizer", [&](params::StateList& inner) { optimiser_->list_state(inner); });
}

}  // namespace starling::strategy
