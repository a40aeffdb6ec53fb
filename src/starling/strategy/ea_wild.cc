// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// EA-wild (Wongpanich, You, Demmel, "Rethinking the value of asynchronous solvers for distributed deep learning", HPC Asia 2020): elastic
// averaging with a centre that nobody locks. The centre is a window at worker 0; a worker reads it and adds to it whenever it likes, while
// others do the same. Workers may form groups that are synchronous inside, of which one member exchanges with the centre for all.
//
// The window counts the exchanges (counted_window.h), so that what a worker had read and what came before its own is known exactly.
#include <fmt/format.h>

#include <algorithm>

#include "starling/base/error.h"
#include "starling/base/floats.h"
#include "starling/base/random.h"
#include "starling/collective/collective.h"
#include "starling/strategy/counted_window.h"
#include "starling/strategy/elastic.h"
#include "starling/strategy/gathering.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {
namespace {

std::vector<fabric::Rank> members_of_group(fabric::Rank rank, int size) {
  std::vector<fabric::Rank> members;
  members.reserve(static_cast<std::size_t>(size));
  const fabric::Rank first = rank / size * size;
  for (fabric::Rank member = first; member < first + size; ++member) members.push_back(member);
  return members;
}

class EaWild final : public Strategy {
 public:
  explicit EaWild(Context context)
      : Strategy(std::move(context)),
        tau_(static_cast<std::uint64_t>(this->context().settings.integer("tau"))),
        random_(this->context().settings.choice("representative") == "random"),
        group_(members_of_group(rank(), static_cast<int>(this->context().settings.integer("group")))),
        size_(this->context().layout.parameter_count()),
        optimiser_(this->context(), parameters_of(this->context().layout)),
        read_(size_),
        spring_(size_) {}

  Status start(std::span<float> weights, std::span<const float> model) override {
    STARLING_TRY(centre_.open(context(), "ea-wild centre", model));
    return collective::broadcast(endpoint(), group_, weights);
  }

  Status exchange(const Step& step) override {
    bool usable = step.samples > 0 && step.finite;
    if (group_.size() > 1) STARLING_TRY(average_in_group(step, usable));
    const bool due = step.number % tau_ == 0;
    if (due) STARLING_TRY(pull_on_the_spring(step));
    if (usable) optimiser_.step(step.weights, step.gradient, step.lr, step.first_stage);
    if (due) subtract_floats(step.weights, step.weights, spring_);
    return {};
  }

  // The window ends with its home, so nobody may leave before all have read it.
  Status finish(std::span<float> weights, std::span<float> model) override {
    STARLING_TRY(wait_for_all(context(), ++gatherings_));
    STARLING_TRY(peek(weights, model));
    return wait_for_all(context(), ++gatherings_);
  }

  Status peek(std::span<const float> /*weights*/, std::span<float> model) override { return centre_.peek(model); }

  void list_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
  }

 private:
  // The mean over the samples of the group, or over its members where batches are alike. `usable` becomes whether there is one.
  Status average_in_group(const Step& step, bool& usable) {
    if (step.share != 1) scale_floats(step.gradient, static_cast<float>(step.share));
    STARLING_TRY(collective::all_reduce(endpoint(), group_, step.gradient));
    std::vector<float> weight{step.finite ? static_cast<float>(step.share) : 0.0F};
    if (step.share != 1 || context().skips_not_finite) {  // The same for all members.
      STARLING_TRY(collective::all_reduce(endpoint(), group_, weight));
    } else {
      weight[0] = static_cast<float>(group_.size());
    }
    usable = weight[0] > 0;
    if (usable) scale_floats(step.gradient, 1.0F / weight[0]);
    return {};
  }

  // spring_ = α (w − c), read and added without a lock; by one member for its group.
  Status pull_on_the_spring(const Step& step) {
    const int representative = representative_of(step.number);
    if (group_[representative] == rank()) {
      const params::UpdateId id = context().account.produced();
      endpoint().pass("push");
      STARLING_TRY(centre_.read(read_));
      const float alpha = elastic_alpha(context().settings, step.lr, context().roles.workers / group_.size());
      scaled_difference(spring_, alpha, step.weights, read_);
      Result<std::uint64_t> number = centre_.take_number();
      if (!number) return number.failure();
      context().account.applied_in_order(0, id, centre_.count_read(), *number);
      STARLING_TRY(centre_.add(0, spring_));
    }
    return collective::broadcast(endpoint(), group_, spring_, representative);
  }

  int representative_of(std::uint64_t number) const {
    if (!random_ || group_.size() == 1) return 0;
    RandomStream stream(context().seed, static_cast<std::uint32_t>(group_[0]), "ea-wild representative");
    constexpr unsigned kWordsPerStep = 4;
    stream.seek(number << kWordsPerStep);
    return static_cast<int>(stream.below(static_cast<std::uint64_t>(group_.size())));
  }

  std::uint64_t tau_;
  bool random_;
  fabric::Group group_;
  std::size_t size_;
  RunOptimiser optimiser_;
  CountedWindow centre_;
  std::vector<float> read_;
  std::vector<float> spring_;
  std::uint64_t gatherings_ = 1;  // Opening the window was one.
};

void check_groups(const Settings& settings, const Roles& roles) {
  const std::int64_t size = settings.integer("group");
  if (roles.workers % size == 0) return;
  std::string sizes;
  for (int divisor = 1; divisor <= roles.workers; ++divisor) {
    if (roles.workers % divisor == 0) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", divisor);
  }
  throw UserError(fmt::format("ea-wild.group is {}, but {} workers can only form groups of {}", size, roles.workers, sizes));
}

}  // namespace

Description describe_ea_wild() {
  Description description;
  description.name = "ea-wild";
  description.summary = "elastic averaging without a lock: workers read and add to the centre whenever they like";
  description.rule =
      "every tau-th step, whenever a worker is ready, both from the values before the step and without any lock:\n"
      "worker   w_j = w_j - (optimizer step with g_j) - alpha (w_j - c)\n"
      "centre   c = c + alpha (w_j - c), component by component\n"
      "groups   members average their gradients; one of them exchanges with the centre for all. alpha = lr rho, or beta / groups. The "
      "result is c";
  description.traffic =
      "every tau steps per group: n + 1 floats read from a window at worker 0, n added to it; inside groups: an all-reduce per step";
  description.paper = "Wongpanich, You and Demmel 2020.";
  description.options = elastic_options("groups");
  description.options.push_back(Option::integer("tau", 1, 1, 1'000'000'000, "steps from one exchange to the next"));
  description.options.push_back(Option::integer("group", 1, 1, 100'000, "workers in a group; must divide their number"));
  description.options.push_back(Option::choice("representative", "fixed", {"fixed", "random"},
                                               "who exchanges for a group: its first member, or another one each time"));
  description.sends = Sends::weights;
  description.places = Places::centre;
  description.survives_lost_worker = true;
  description.lockstep_when = [](const Settings& settings) { return settings.integer("group") > 1; };
  description.step_group = [](const Settings& settings, const Roles& /*roles*/, fabric::Rank rank) {
    return members_of_group(rank, static_cast<int>(settings.integer("group")));
  };
  description.make = [](Context context) { return std::make_unique<EaWild>(std::move(context)); };
  description.check = check_groups;
  return description;
}

}  // namespace starling::strategy
