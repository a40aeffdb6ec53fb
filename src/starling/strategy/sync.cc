// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Synchronous SGD by all-reduce: P workers with a batch of B/P samples take the steps of one worker with a batch of B, up to the order in
// which floats are added. Every worker has the optimiser, and all of them the same state.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/floats.h"
#include "starling/strategy/coded_sum.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {
namespace {

collective::AllReduceOptions all_reduce_options(const Settings& settings) {
  const std::string& name = settings.choice("all_reduce");
  collective::AllReduceOptions options;
  if (name != "shared-memory") options.algorithm = collective::parse_algorithm(name);
  options.subgroup = static_cast<int>(settings.integer("subgroup"));
  return options;
}

class Sync final : public Strategy {
 public:
  explicit Sync(Context context)
      : Strategy(std::move(context)),
        workers_(this->context().roles.worker_group()),
        sum_(this->context(), all_reduce_options(this->context().settings)),
        optimiser_(this->context(), parameters_of(this->context().layout)) {
    if (this->context().skips_not_finite) flags_.resize(static_cast<std::size_t>(workers_.size()));
  }

  Status start(std::span<float> weights, std::span<const float> /*model*/) override {
    if (context().settings.choice("all_reduce") == "shared-memory" && workers_.size() > 1) {
      // An all-reduce of nothing would do nothing, so one float is added up.
      std::vector<float> probe{0};
      std::optional<Status> status = endpoint().native_all_reduce(workers_, probe, fabric::Deadline::standard());
      if (!status) {
        throw UserError(
            "sync.all_reduce is shared-memory, but the ranks of this fabric share none; use automatic, flat, direct, ring or hierarchical");
      }
      STARLING_TRY(std::move(*status));
    }
    // All start from worker 0's, also where the model was not initialised from the seed alone.
    return collective::broadcast(endpoint(), workers_, weights);
  }

  Status exchange(const Step& step) override {
    const params::UpdateId id = context().account.produced();
    endpoint().pass("push");
    if (step.share != 1) scale_floats(step.gradient, static_cast<float>(step.share));
    int usable = workers_.size();
    if (!flags_.empty()) STARLING_TRY(tell_who_is_finite(step.finite, usable));
    if (usable > 0) STARLING_TRY(sum_.add_up(step.gradient, step.epoch));
    for (int worker = 0; worker < workers_.size(); ++worker) enter({.origin = worker, .number = id.number});
    if (usable == 0) return {};
    if (usable > 1) scale_floats(step.gradient, 1.0F / static_cast<float>(usable));
    optimiser_.step(step.weights, step.gradient, step.lr, step.first_stage);
    return {};
  }

  // All replicas are equal, so any of them is the result.
  Status finish(std::span<float> weights, std::span<float> model) override { return peek(weights, model); }

  void list_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
    sum_.list_state(state);
  }

 private:
  Status tell_who_is_finite(bool finite, int& usable) {
    std::fill(flags_.begin(), flags_.end(), 0.0F);
    flags_[static_cast<std::size_t>(rank())] = finite ? 1.0F : 0.0F;
    STARLING_TRY(collective::all_reduce(endpoint(), workers_, flags_));
    usable = static_cast<int>(std::count(flags_.begin(), flags_.end(), 1.0F));
    return {};
  }

  void enter(const params::UpdateId& id) {
    if (flags_.empty() || flags_[static_cast<std::size_t>(id.origin)] == 1) {
      context().account.applied_fresh(id);
    } else if (id.origin == rank()) {
      context().account.dropped(id, ledger::kNotFinite);
    }
  }

  fabric::Group workers_;
  CodedSum sum_;
  RunOptimiser optimiser_;
  std::vector<float> flags_;  // Whose gradient is finite, where others are to be left out.
};

}  // namespace

Description describe_sync() {
  Description description;
  description.name = "sync";
  description.summary = "synchronous SGD: gradients are averaged over all workers in every step";
  description.rule = "worker   g = gradient at w; g = (1/P) sum of all workers' g (all-reduce); w = optimizer step with g";
  description.traffic =
      "per step and worker, by all_reduce: direct and ring 2 (P-1) messages with 2 (P-1)/P n floats; flat 2 messages with 2 n floats, at\n"
      "worker 0 2 (P-1); hierarchical as flat inside subgroups, as direct between their first members; with a codec: P-1 messages of the\n"
      "encoded gradient";
  description.paper = "Chen et al. 2016 (\"Revisiting distributed synchronous SGD\"), without backup workers.";
  description.options = {
      Option::choice("all_reduce", "automatic", {"automatic", "flat", "direct", "ring", "hierarchical", "shared-memory"},
                     "how gradients are added up; automatic: in shared memory where the fabric has it, else flat or direct by size"),
      Option::integer("subgroup", 8, 1, 100000, "workers in a subgroup, for hierarchical")};
  description.sends = Sends::gradients;
  description.places = Places::workers;
  description.lockstep = true;
  description.resumes_with_other_workers = true;
  description.make = [](Context context) { return std::make_unique<Sync>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
