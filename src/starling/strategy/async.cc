// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The plain asynchronous parameter server (Dean et al., "Large scale distributed deep networks", NIPS 2012, with n_push = n_fetch = 1):
// every worker pulls, computes and pushes at its own pace, and a server applies updates as they arrive. The optimiser, with its one
// momentum buffer for all workers, is on the server. One worker is sequential training, bit for bit.
#include "starling/strategy/methods.h"
#include "starling/strategy/parameter_server.h"

namespace starling::strategy {
namespace {

class Async final : public ParameterServer {
 public:
  explicit Async(Context context) : ParameterServer(std::move(context)) {
    if (is_server()) optimiser_.emplace(this->context(), part_layout());
  }

  Status exchange(const Step& step) override {
    if (step.samples == 0) return {};
    const params::UpdateId id = context().account.produced();
    endpoint().pass("push");
    if (step.finite) return push_and_pull(id, step.gradient, step, step.weights);
    context().account.dropped(id, ledger::kNotFinite);
    return pull(step.weights);
  }

 private:
  void apply(const Update& update, std::span<float> weights) override {
    optimiser_->step(weights, update.values, update.lr, update.first_stage);
  }
  void list_server_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_->list_state(inner); });
  }

  std::optional<RunOptimiser> optimiser_;  // On servers.
};

}  // namespace

Description describe_async() {
  Description description;
  description.name = "async";
  description.summary = "plain asynchronous parameter server: updates are applied as they arrive";
  description.rule =
      "worker   g = gradient at w; push g to the servers; w = what they reply with\n"
      "server   on g from any worker: w = optimizer step with g (with momentum: v = mu v + g; w = w - lr v); reply with w";
  description.traffic = "per step and worker: S messages up with n floats in all (fewer bytes with a codec), S down with n floats";
  description.paper = "Dean et al. 2012 (Downpour with n_push = n_fetch = 1); the optimizer is on the server and is shared by all workers.";
  description.options = {staleness_lr_option()};
  description.sends = Sends::gradients;
  description.places = Places::servers;
  description.needs_servers = true;
  description.survives_lost_worker = true;
  description.make = [](Context context) { return std::make_unique<Async>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
