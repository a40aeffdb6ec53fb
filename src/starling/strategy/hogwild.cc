// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Hogwild! (Niu, Recht, Ré, Wright, "Hogwild!: a lock-free approach to parallelizing stochastic gradient descent", NIPS 2011): one set of
// weights, a window at worker 0, which all workers read and add to whenever they like, without a lock. An update is written component by
// component, and no addition is lost; rows that an update does not touch are not written, which is what the paper's analysis lives from.
// The optimiser is on every worker, with state of its own; or there is none but plain SGD, as in the paper.
//
// Deviations: an update that others have overtaken takes a smaller step (staleness_lr), which the paper's sparse problems do not need and
// dense ones with momentum do.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/floats.h"
#include "starling/strategy/counted_window.h"
#include "starling/strategy/gathering.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/shards.h"
#include "starling/strategy/staleness_lr.h"
#include "starling/strategy/touched_rows.h"

namespace starling::strategy {
namespace {

Context with_own_optimiser(Context context) {
  if (context.settings.choice("momentum") == "none") context.optimiser.name = "sgd";
  return context;
}

class Hogwild final : public Strategy {
 public:
  explicit Hogwild(Context context)
      : Strategy(with_own_optimiser(std::move(context))),
        staleness_rule_(this->context().settings.choice("staleness_lr")),
        optimiser_(this->context(), parameters_of(this->context().layout)),
        rows_(this->context().layout),
        delta_(this->context().layout.parameter_count()) {}

  Status start(std::span<float> /*weights*/, std::span<const float> model) override {
    return shared_.open(context(), "hogwild weights", model);
  }

  Status prepare(std::span<float> weights) override { return shared_.read(weights); }

  Status exchange(const Step& step) override {
    if (step.samples == 0) return {};
    const params::UpdateId id = context().account.produced();
    endpoint().pass("push");
    if (!step.finite) {
      context().account.dropped(id, ledger::kNotFinite);
      return {};
    }
    optimiser_.difference(step.weights, step.gradient, step.lr, step.first_stage, delta_);
    Result<std::uint64_t> number = shared_.take_number();
    if (!number) return number.failure();
    const double scale = staleness_scale(staleness_rule_, *number - shared_.count_read());
    if (scale != 1) scale_floats(delta_, static_cast<float>(scale));
    STARLING_TRY(add_what_is_touched());
    // Entered only now: of a worker that is lost in between nobody can say how much it has added.
    context().account.applied_in_order(0, id, shared_.count_read(), *number);
    return {};
  }

  // The window ends with its home, so nobody may leave before all have read it.
  Status finish(std::span<float> weights, std::span<float> model) override {
    STARLING_TRY(wait_for_all(context(), ++gatherings_));
    STARLING_TRY(shared_.peek(model));
    std::copy(model.begin(), model.end(), weights.begin());
    return wait_for_all(context(), ++gatherings_);
  }

  Status peek(std::span<const float> /*weights*/, std::span<float> model) override { return shared_.peek(model); }

  void list_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
  }

 private:
  // Workers that add at the same time would wait for each other's cache lines all the way, so in memory each begins at another place and
  // comes round to it.
  Status add_what_is_touched() {
    const std::span<const Range> touched = rows_.of(delta_);
    const std::size_t first = shared_.is_memory() ? first_float() : 0;
    for (const Range& range : touched) STARLING_TRY(add_between(range, first, delta_.size()));
    for (const Range& range : touched) STARLING_TRY(add_between(range, 0, first));
    return {};
  }

  Status add_between(const Range& range, std::size_t least, std::size_t end_of_all) {
    const std::size_t begin = std::max(range.begin, least);
    const std::size_t end = std::min(range.begin + range.size, end_of_all);
    return begin < end ? shared_.add(begin, std::span<const float>(delta_).subspan(begin, end - begin)) : Status{};
  }

  // At the beginning of a cache line.
  std::size_t first_float() const {
    constexpr std::size_t kLineFloats = 16;
    const std::size_t share = delta_.size() / static_cast<std::size_t>(context().roles.workers);
    return share * static_cast<std::size_t>(rank()) / kLineFloats * kLineFloats;
  }

  std::string staleness_rule_;
  RunOptimiser optimiser_;
  TouchedRows rows_;
  CountedWindow shared_;
  std::vector<float> delta_;
  std::uint64_t gatherings_ = 1;  // Opening the window was one.
};

}  // namespace

Description describe_hogwild() {
  Description description;
  description.name = "hogwild";
  description.summary = "one set of weights without a lock: workers read it and add to it whenever they like";
  description.rule =
      "all workers, whenever they are ready and without any lock, on the weights w in a window at worker 0:\n"
      "worker   read w; d = change of w by an optimizer step with its gradient (its own momentum, or plain SGD)\n"
      "         w = w + d / max(1, staleness), component by component; rows of d that are 0 are not written";
  description.traffic =
      "per step and worker: n + 1 floats read from a window at worker 0, at most n + 1 added to it; fewer if d has rows of 0";
  description.paper = "Niu, Recht, Re and Wright 2011. Deviations: momentum, and steps that are smaller if stale.";
  description.options = {Option::choice("momentum", "worker", {"worker", "none"},
                                        "the run's optimizer on every worker, with its own state; or plain SGD, whatever --optimizer says"),
                         staleness_lr_option()};
  description.sends = Sends::additions;
  description.places = Places::centre;
  description.survives_lost_worker = true;
  description.resumes_with_other_workers = true;
  description.make = [](Context context) { return std::make_unique<Hogwild>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
