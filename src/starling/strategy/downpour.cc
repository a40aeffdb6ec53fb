// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Downpour SGD (Dean et al., "Large scale distributed deep networks", NIPS 2012): a worker moves on its own, pushes what it has accumulated
// every n_push steps and takes the server's weights every n_fetch steps. Here the optimiser is on the worker and the server adds
// differences; the paper's AdaGrad on the server is what `async` with --optimizer adagrad does for n_push = n_fetch = 1.
#include "starling/strategy/delta_server.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

class Downpour final : public DeltaServer {
 public:
  explicit Downpour(Context context)
      : DeltaServer(std::move(context)),
        n_push_(static_cast<std::uint64_t>(this->context().settings.integer("n_push"))),
        n_fetch_(static_cast<std::uint64_t>(this->context().settings.integer("n_fetch"))) {}

  Status exchange(const Step& step) override {
    if (step.samples == 0) return {};
    if (step.finite) {
      step_locally(step);
    } else {
      context().account.dropped(context().account.produced(), ledger::kNotFinite);
    }
    const bool push_is_due = steps_since_push() == n_push_;
    const bool fetch_is_due = ++since_fetch_ >= n_fetch_;
    if (fetch_is_due) since_fetch_ = 0;
    if (push_is_due) return push_delta(step, 1, fetch_is_due);
    return fetch_is_due ? pull(step.weights) : Status{};
  }

 private:
  std::uint64_t n_push_;
  std::uint64_t n_fetch_;
  std::uint64_t since_fetch_ = 0;
};

}  // namespace

Description describe_downpour() {
  Description description;
  description.name = "downpour";
  description.summary = "workers move on their own, push what has accumulated every n_push steps, fetch every n_fetch";
  description.rule =
      "worker   d = change of w by an optimizer step with its gradient; w = w + d; a = a + d\n"
      "         every n_push steps: push a; a = 0.   every n_fetch steps: w = the servers'\n"
      "server   w = w + a on arrival";
  description.traffic = "per worker: S messages up with n floats every n_push steps, S up and S down with n floats every n_fetch steps";
  description.paper = "Dean et al. 2012; the optimizer is on the worker (for one on the server use async).";
  description.options = {Option::integer("n_push", 2, 1, 1'000'000'000, "steps from one push to the next"),
                         Option::integer("n_fetch", 2, 1, 1'000'000'000, "steps from one fetch to the next"), staleness_lr_option()};
  description.sends = Sends::deltas;
  description.places = Places::servers;
  description.needs_servers = true;
  description.survives_lost_worker = true;
  description.resumes_with_other_workers = true;
  description.make = [](Context context) { return std::make_unique<Downpour>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
