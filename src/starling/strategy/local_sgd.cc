// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Local SGD, or periodic model averaging (Stich, "Local SGD converges fast and communicates little", ICLR 2019): every worker takes H steps
// on its own, then all go on from the average. Only parameters are averaged; the state of the optimiser stays with the worker.
#include "starling/strategy/averaging.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

class LocalSgd final : public Averaging {
 public:
  explicit LocalSgd(const Context& context) : Averaging(context, static_cast<std::uint64_t>(context.settings.integer("period"))) {}

 private:
  bool weighs_batches() const override { return true; }
  double share_of(int /*worker*/, std::uint64_t /*round*/) const override { return 1.0 / context().roles.workers; }
};

}  // namespace

Description describe_local_sgd() {
  Description description;
  description.name = "local-sgd";
  description.summary = "every worker steps on its own; every H steps all go on from the average of their weights";
  description.rule =
      "worker   w_j = optimizer step with its own gradient; after every H-th step: w_j = (1/P) sum of all workers' w (all-reduce)";
  description.traffic =
      "every H steps per worker: an all-reduce of n floats, 2 (P-1)/P n of them sent; with a codec: P-1 messages of the encoded "
      "difference\n"
      "from where the round began";
  description.paper = "Stich 2019. With H = 1 and plain SGD it is sync, up to the order in which floats are added.";
  description.options = {Option::integer("period", 8, 1, 1'000'000'000, "H: steps from one average to the next")};
  description.sends = Sends::deltas;
  description.places = Places::workers;
  description.lockstep = true;
  description.resumes_with_other_workers = true;
  description.make = [](const Context& context) { return std::make_unique<LocalSgd>(context); };
  return description;
}

}  // namespace starling::strategy
