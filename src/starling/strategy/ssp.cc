// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Stale synchronous parallel (Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013): a
// worker that has finished clock c may start the next only if the slowest worker has finished clock c - s. Workers run the optimiser and
// push differences, so with s = 0 and an optimiser that is linear in the gradient (sgd, momentum, nesterov) it is synchronous SGD, up to
// the order in which floats are added.
#include <algorithm>
#include <vector>

#include "starling/base/floats.h"
#include "starling/strategy/delta_server.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

class Ssp final : public DeltaServer {
 public:
  explicit Ssp(Context context)
      : DeltaServer(std::move(context)),
        bound_(static_cast<std::uint64_t>(this->context().settings.integer("bound"))),
        started_(static_cast<std::size_t>(this->context().roles.workers)) {}

  // A step is a clock, also one without samples: the others count on it.
  Status exchange(const Step& step) override {
    if (!step.finite) {
      const params::UpdateId id = context().account.produced();
      context().account.dropped(id, ledger::kNotFinite);
      return pull(step.weights, id);
    }
    if (step.share != 1) scale_floats(step.gradient, static_cast<float>(step.share));
    step_locally(step);
    return push_delta(step, 1.0 / context().roles.workers, true);
  }

 private:
  bool must_wait(std::uint64_t clock, std::span<const std::uint64_t> clocks) const override {
    return std::any_of(clocks.begin(), clocks.end(), [&](std::uint64_t other) { return other + bound_ < clock; });
  }

  // An update waits until every worker that has yet to make one of this clock has its first weights: otherwise one that starts late would
  // begin with updates of a clock that it has not come to. Those further on may be waiting for this very update.
  bool must_stall(const params::UpdateId& id, std::span<const char> at_work) const override {
    for (std::size_t worker = 0; worker < at_work.size(); ++worker) {
      if (at_work[worker] != 0 && started_[worker] == 0 && clock_of(static_cast<fabric::Rank>(worker)) < id.number) return true;
    }
    return false;
  }
  void pulled(fabric::Rank worker, const tensor::Tensor& /*weights*/) override { started_[static_cast<std::size_t>(worker)] = 1; }

  std::uint64_t bound_;
  std::vector<char> started_;  // On servers, by worker: has the first weights.
};

}  // namespace

Description describe_ssp() {
  Description description;
  description.name = "ssp";
  description.summary = "stale synchronous parallel: asynchronous, but no worker is more than s clocks ahead of the slowest";
  description.rule =
      "worker   d = change of w by an optimizer step with its gradient; push d/P; w = reply\n"
      "server   w = w + d/P on arrival; replies to a worker that has finished clock c when the slowest has finished clock c - s";
  description.traffic = "per step and worker: S messages up with n floats in all, S down with n floats";
  description.paper = "Ho et al. 2013. s = 0 is synchronous.";
  description.options = {Option::integer("bound", 2, 0, 1'000'000'000, "s: clocks that the fastest may be ahead of the slowest"),
                         staleness_lr_option("none")};
  description.sends = Sends::deltas;
  description.places = Places::servers;
  description.needs_servers = true;
  description.survives_lost_worker = true;
  description.resumes_with_other_workers = true;
  description.make = [](Context context) { return std::make_unique<Ssp>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
