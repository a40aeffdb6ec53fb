// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Elastic averaging (Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", NIPS 2015): workers keep weights of their own,
// and a spring pulls each of them and a common centre towards each other. Here the centre is on the servers, and one worker at a time
// exchanges with it: in round-robin order, or as they come. Both sides move from the same snapshot, taken before the worker's gradient
// step. The worker's own step is the run's optimiser's (the paper's EASGD with --optimizer sgd); ea-msgd takes Nesterov's momentum. The
// spring is not part of the momentum. The result is the centre.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "starling/base/floats.h"
#include "starling/strategy/elastic.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/parameter_server.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {

std::vector<Option> elastic_options(const std::string& parties) {
  return {Option::number("alpha", 0, 0, 1, "how far worker and centre move towards each other; 0: lr x rho"),
          Option::number("rho", 0, 0, 1e6, fmt::format("strength of the spring, where alpha is 0; 0: alpha is beta / {}", parties)),
          Option::number("beta", 0.9, 0, 1, fmt::format("where alpha and rho are 0: alpha is beta / {}", parties))};
}

float elastic_alpha(const Settings& settings, double lr, int workers) {
  const double alpha = settings.number("alpha");
  const double rho = settings.number("rho");
  if (alpha > 0) return static_cast<float>(alpha);
  return static_cast<float>(rho > 0 ? lr * rho : settings.number("beta") / workers);
}

namespace {

Context with_nesterov(Context context) {
  context.optimiser.name = "nesterov";
  return context;
}

class Easgd final : public ParameterServer {
 public:
  explicit Easgd(Context context)
      : ParameterServer(std::move(context)),
        tau_(static_cast<std::uint64_t>(this->context().settings.integer("tau"))),
        round_robin_(this->context().settings.choice("order") == "round-robin") {
    if (is_server()) return;
    optimiser_.emplace(this->context(), parameters_of(this->context().layout));
    before_ = std::make_shared<std::vector<float>>(parameter_count());
    centre_.resize(parameter_count());
  }

  Status start(std::span<float> weights, std::span<const float> model) override {
    // The centre starts from the model, and a worker from its own weights: equal at first, different after a restore.
    return ParameterServer::start(centre_, model.empty() ? weights : model);
  }

  Status exchange(const Step& step) override {
    const bool due = step.number % tau_ == 0;
    if (due) {
      const params::UpdateId id = context().account.produced();
      endpoint().pass("push");
      std::copy(step.weights.begin(), step.weights.end(), before_->begin());
      STARLING_TRY(push_and_pull(id, *before_, step, centre_, before_));
    }
    if (step.samples > 0 && step.finite) optimiser_->step(step.weights, step.gradient, step.lr, step.first_stage);
    if (due) {
      const float alpha = elastic_alpha(context().settings, step.lr, context().roles.workers);
      scaled_difference(*before_, alpha, *before_, centre_);
      subtract_floats(step.weights, step.weights, *before_);
    }
    return {};
  }

 private:
  void apply(const Update& update, std::span<float> weights) override {
    const float alpha = elastic_alpha(context().settings, update.lr, context().roles.workers);
    spring_.resize(weights.size());
    scaled_difference(spring_, alpha, update.values, weights);
    add_floats(weights, spring_);
    last_ = update.worker;
  }

  bool answers_with_old_weights() const override { return true; }

  std::optional<fabric::Rank> whose_turn(std::span<const char> at_work) override {
    if (!round_robin_) return std::nullopt;
    const auto workers = static_cast<fabric::Rank>(at_work.size());
    for (fabric::Rank i = 1; i <= workers; ++i) {
      const fabric::Rank next = (last_ + i) % workers;
      if (at_work[static_cast<std::size_t>(next)] != 0) return next;
    }
    return std::nullopt;
  }

  void list_worker_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_->list_state(inner); });
  }

  std::uint64_t tau_;
  bool round_robin_;
  std::optional<RunOptimiser> optimiser_;  // On workers.
  // The worker's weights before its step, then what the spring takes off. Shared with messages on their way.
  std::shared_ptr<std::vector<float>> before_;
  std::vector<float> centre_;
  std::vector<float> spring_;  // On servers.
  fabric::Rank last_ = -1;     // Who exchanged last.
};

Description describe_common() {
  Description description;
  description.traffic = "every tau steps per worker: S messages up with n floats in all (its weights), S down with n floats (the centre)";
  description.options = elastic_options("P");
  description.options.push_back(Option::integer("tau", 4, 1, 1'000'000'000, "steps from one exchange to the next"));
  description.options.push_back(
      Option::choice("order", "round-robin", {"round-robin", "arrival"}, "who exchanges next: worker j after j - 1, or who comes first"));
  description.sends = Sends::weights;
  description.places = Places::servers;
  description.needs_servers = true;
  description.survives_lost_worker = true;
  return description;
}

constexpr const char* kRule =
    "every tau-th step, one worker at a time, both from the values before the step:\n"
    "worker   w_j = w_j - (optimizer step with g_j) - alpha (w_j - c)\n"
    "server   c = c + alpha (w_j - c)\n"
    "the other steps are local. alpha = lr rho, or beta / P. The result is c";

}  // namespace

Description describe_easgd() {
  Description description = describe_common();
  description.name = "easgd";
  description.summary = "elastic averaging: a spring between every worker and a centre; one worker at a time, in turn";
  description.rule = kRule;
  description.paper =
      "Zhang, Choromanska and LeCun 2015; with --optimizer sgd exactly its EASGD. beta / P is the choice of its authors' code.";
  description.make = [](Context context) { return std::make_unique<Easgd>(std::move(context)); };
  return description;
}

Description describe_ea_msgd() {
  Description description = describe_common();
  description.name = "ea-msgd";
  description.summary = "elastic averaging with Nesterov momentum on the workers";
  description.rule = std::string(kRule) + "\nthe optimizer is nesterov, whatever --optimizer says; the spring is not part of its momentum";
  description.paper = "Zhang, Choromanska and LeCun 2015 (EAMSGD).";
  description.make = [](Context context) { return std::make_unique<Easgd>(with_nesterov(std::move(context))); };
  return description;
}

}  // namespace starling::strategy
