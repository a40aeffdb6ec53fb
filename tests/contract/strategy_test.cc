// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Every strategy, on every fabric, with several numbers of workers: it gives what its serial reference gives when that replays the order in
// which things really happened, the books balance, and all workers learn the same result, or each its own where that is the method. A
// strategy that is registered and has no cases here fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "contract/strategy_harness.h"
#include "contract/strategy_references.h"
#include "starling/base/error.h"
#include "starling/strategy/subnets.h"

namespace starling::strategy {
namespace {

using reference::Damping;
using reference::Schedule;
using Reference = std::function<reference::Result(const Schedule&)>;

const optim::OptimiserOptions kSgd{.name = "sgd"};
const optim::OptimiserOptions kMomentum{.name = "momentum", .momentum = 0.5};

// One way to use a strategy, and the reference for it.
struct Case {
  std::map<std::string, std::string> settings{};
  optim::OptimiserOptions optimiser = kMomentum;
  Reference reference{};
  bool by_exchanges = false;  // The order is that of exchanges with a centre at a server.
};

Schedule damped(Schedule schedule, Damping damping) {
  schedule.damping = damping;
  return schedule;
}

// What comes before everybody has the first weights waits until then.
Schedule started_together(Schedule schedule) {
  std::vector<char> started(static_cast<std::size_t>(schedule.workers));
  std::stable_partition(schedule.order.begin(), schedule.order.end(), [&](const reference::Event& event) {
    return event.kind == reference::Kind::pull && std::exchange(started[static_cast<std::size_t>(event.worker)], 1) == 0;
  });
  return schedule;
}

std::vector<Case> ssp_cases() {
  std::vector<Case> cases;
  for (const int bound : {0, 1, 3}) {
    cases.push_back({.settings = {{"bound", std::to_string(bound)}},
                     .reference = [bound](const Schedule& s) { return ssp(started_together(s), bound); }});
  }
  cases.push_back({.settings = {{"staleness_lr", "inverse"}},
                   .reference = [](const Schedule& s) { return ssp(started_together(damped(s, Damping::by_staleness)), 2); }});
  return cases;
}

std::vector<Case> async_cases() {
  return {
      {.settings = {{"staleness_lr", "none"}}, .optimiser = kSgd, .reference = reference::async},
      {.settings = {{"staleness_lr", "none"}}, .reference = reference::async},
      {.reference = [](const Schedule& s) { return async(damped(s, Damping::by_staleness)); }},
      {.settings = {{"staleness_lr", "inverse"}}, .reference = [](const Schedule& s) { return async(damped(s, Damping::by_staleness)); }},
      {.settings = {{"staleness_lr", "inverse-plus-one"}},
       .reference = [](const Schedule& s) { return async(damped(s, Damping::by_staleness_plus_one)); }}};
}

std::vector<Case> downpour_cases() {
  std::vector<Case> cases;
  for (const auto& [push, fetch] : std::vector<std::pair<int, int>>{{1, 1}, {2, 3}, {3, 2}, {4, 4}}) {
    cases.push_back({.settings = {{"n_push", std::to_string(push)}, {"n_fetch", std::to_string(fetch)}},
                     .reference = [n_push = push, n_fetch = fetch](const Schedule& s) {
                       return downpour(damped(s, Damping::by_staleness), n_push, n_fetch);
                     }});
  }
  cases.push_back({.settings = {{"n_push", "2"}, {"n_fetch", "2"}, {"staleness_lr", "inverse-plus-one"}},
                   .reference = [](const Schedule& s) { return downpour(damped(s, Damping::by_staleness_plus_one), 2, 2); }});
  cases.push_back({.settings = {{"n_push", "2"}, {"n_fetch", "3"}, {"staleness_lr", "none"}},
                   .reference = [](const Schedule& s) { return downpour(s, 2, 3); }});
  return cases;
}

std::vector<Case> agn_cases() {
  std::vector<Case> cases;
  for (const int k : {1, 4}) {
    cases.push_back(
        {.settings = {{"k", std::to_string(k)}}, .reference = [k](const Schedule& s) { return agn(damped(s, Damping::by_staleness), k); }});
  }
  cases.push_back({.settings = {{"k", "2"}, {"staleness_lr", "none"}}, .reference = [](const Schedule& s) { return agn(s, 2); }});
  return cases;
}

std::vector<Case> dc_asgd_cases() {
  return {{.settings = {{"lambda", "0"}, {"staleness_lr", "none"}}, .reference = reference::async},
          {.settings = {{"lambda", "0.5"}, {"staleness_lr", "none"}},
           .reference = [](const Schedule& s) { return dc_asgd(s, {.lambda = 0.5}); }},
          {.settings = {{"lambda", "1"}, {"adaptive", "true"}},
           .optimiser = kSgd,
           .reference = [](const Schedule& s) { return dc_asgd(damped(s, Damping::by_staleness), {.lambda = 1, .adaptive = true}); }},
          {.settings = {{"lambda", "0.5"}},
           .reference = [](const Schedule& s) { return dc_asgd(damped(s, Damping::by_staleness), {.lambda = 0.5}); }}};
}

using Elastic = reference::Result (*)(const Schedule&, double alpha, int period);

std::vector<Case> elastic_cases(Elastic elastic, int workers) {
  const auto by_turns = [](Schedule schedule) {
    schedule.order.clear();
    return schedule;
  };
  return {{.settings = {{"tau", "1"}},
           .reference = [=](const Schedule& s) { return elastic(by_turns(s), 0.9 / workers, 1); },
           .by_exchanges = true},
          {.settings = {{"alpha", "0.25"}, {"tau", "2"}},
           .reference = [=](const Schedule& s) { return elastic(by_turns(s), 0.25, 2); },
           .by_exchanges = true},
          {.settings = {{"rho", "2"}, {"tau", "1"}, {"order", "arrival"}},
           .reference = [=](const Schedule& s) { return elastic(s, 2 * s.lr, 1); },
           .by_exchanges = true}};
}

std::vector<Case> ea_wild_cases(int workers) {
  std::vector<Case> cases{{.reference = [=](const Schedule& s) { return ea_wild(s, {.alpha = 0.9 / workers}); }},
                          {.settings = {{"alpha", "0.25"}, {"tau", "2"}},
                           .optimiser = {.name = "nesterov", .momentum = 0.5},
                           .reference = [](const Schedule& s) { return ea_wild(s, {.alpha = 0.25, .period = 2, .nesterov = true}); }}};
  for (const int group : {2, 3, 4}) {
    if (workers % group != 0) continue;
    for (const char* representative : {"fixed", "random"}) {
      cases.push_back({.settings = {{"group", std::to_string(group)}, {"representative", representative}},
                       .reference = [=](const Schedule& s) { return ea_wild(s, {.alpha = 0.9 * group / workers, .group_size = group}); }});
    }
  }
  return cases;
}

std::vector<Case> hogwild_cases() {
  const auto still = [](Schedule schedule) {
    schedule.momentum = 0;
    return schedule;
  };
  return {
      {.reference = [](const Schedule& s) { return hogwild(damped(s, Damping::by_staleness)); }},
      {.settings = {{"staleness_lr", "none"}}, .reference = reference::hogwild},
      {.settings = {{"staleness_lr", "inverse-plus-one"}},
       .optimiser = kSgd,
       .reference = [](const Schedule& s) { return hogwild(damped(s, Damping::by_staleness_plus_one)); }},
      {.settings = {{"momentum", "none"}, {"staleness_lr", "none"}}, .reference = [=](const Schedule& s) { return hogwild(still(s)); }}};
}

std::vector<Case> local_sgd_cases() {
  std::vector<Case> cases;
  for (const int period : {1, 3, 4}) {
    cases.push_back(
        {.settings = {{"period", std::to_string(period)}}, .reference = [period](const Schedule& s) { return local_sgd(s, period); }});
  }
  return cases;
}

std::vector<Case> sync_cases() {
  std::vector<Case> cases{{.reference = reference::sync}, {.optimiser = kSgd, .reference = reference::sync}};
  for (const char* algorithm : {"flat", "direct", "ring", "hierarchical"}) {
    cases.push_back({.settings = {{"all_reduce", algorithm}, {"subgroup", "2"}}, .reference = reference::sync});
  }
  return cases;
}

// Who takes part is the strategy's choice, so the reference is made when the run is over.
std::vector<Case> fedavg_cases() { return {{.settings = {{"period", "3"}}}, {.settings = {{"period", "3"}, {"fraction", "0.5"}}}}; }

reference::Result fedavg_reference(const Trial& trial, const Outcome& outcome) {
  constexpr int kPeriod = 3;
  reference::FedAvgOptions options{.local_steps = kPeriod};
  for (const std::uint64_t samples : trial.samples()) options.samples.push_back(static_cast<double>(samples));
  for (int first = 0; first < trial.steps; first += kPeriod) {
    std::vector<int> clients;
    for (int worker = 0; worker < trial.workers; ++worker) {
      const std::vector<char>& took_part = outcome.took_part[static_cast<std::size_t>(worker)];
      if (took_part[static_cast<std::size_t>(first)] != 0) clients.push_back(worker);
      for (int step = first; step < first + kPeriod; ++step) {
        EXPECT_EQ(took_part[static_cast<std::size_t>(step)], took_part[static_cast<std::size_t>(first)]) << "in the middle of a round";
      }
    }
    options.clients.push_back(clients);
  }
  const std::size_t expected = trial.settings.contains("fraction") ? static_cast<std::size_t>(std::max(1, (trial.workers + 1) / 2))
                                                                   : static_cast<std::size_t>(trial.workers);
  for (const std::vector<int>& clients : options.clients) EXPECT_EQ(clients.size(), expected);
  return fedavg(outcome.schedule(trial), options);
}

std::vector<Case> gosgd_cases(int workers) {
  std::vector<Case> cases{{.reference = reference::gosgd},
                          {.settings = {{"probability", "1"}}, .optimiser = kSgd, .reference = reference::gosgd},
                          {.settings = {{"probability", "0.6"}, {"topology", "ring"}}, .reference = reference::gosgd}};
  constexpr int kCube = 8;
  if (workers == kCube) cases.push_back({.settings = {{"probability", "0.8"}, {"topology", "hypercube"}}, .reference = reference::gosgd});
  return cases;
}

std::vector<Case> ad_psgd_cases(int workers) {
  std::vector<Case> cases{{.reference = reference::ad_psgd}, {.optimiser = kSgd, .reference = reference::ad_psgd}};
  if (workers == 1 || workers % 2 == 0) cases.push_back({.settings = {{"topology", "ring"}}, .reference = reference::ad_psgd});
  return cases;
}

reference::StreamOptions to_all(double weight, bool momentum) {
  return {.weight = weight, .are_peers = [](int, int) { return true; }, .momentum = momentum};
}

std::vector<Case> dogwild_cases(int workers) {
  return {{.reference = [=](const Schedule& s) { return streams(s, to_all(1.0 / workers, true)); }},
          {.settings = {{"weight", "0.25"}, {"optimizer", "sgd"}},
           .reference = [](const Schedule& s) { return streams(s, to_all(0.25, false)); }},
          {.settings = {{"weight", "1"}}, .optimiser = kSgd, .reference = [](const Schedule& s) { return streams(s, to_all(1, false)); }}};
}

std::vector<Case> all_to_all_cases() {
  return {{.reference = [](const Schedule& s) { return streams(s, to_all(1, false)); }},
          {.settings = {{"optimizer", "run"}, {"ahead", "1"}}, .reference = [](const Schedule& s) { return streams(s, to_all(1, true)); }}};
}

std::vector<Case> neighbours_cases(int workers) {
  const auto ring = [=](int worker, int peer) { return (worker + 1) % workers == peer || (peer + 1) % workers == worker; };
  const double weight = 1.0 / (1 + std::min(2, workers - 1));
  std::vector<Case> cases{{.reference = [=](const Schedule& s) { return streams(s, {.weight = weight, .are_peers = ring}); }},
                          {.settings = {{"topology", "complete"}, {"weight", "0.5"}, {"optimizer", "sgd"}},
                           .reference = [](const Schedule& s) { return streams(s, to_all(0.5, false)); }}};
  constexpr int kCube = 8;
  const auto cube = [](int worker, int peer) { return ((worker ^ peer) & ((worker ^ peer) - 1)) == 0; };
  if (workers == kCube) {
    cases.push_back({.settings = {{"topology", "hypercube"}},
                     .reference = [=](const Schedule& s) { return streams(s, {.weight = 0.25, .are_peers = cube}); }});
  }
  return cases;
}

std::vector<Case> ist_cases() {
  return {{.settings = {{"mode", "async"}, {"period", "2"}}},
          {.settings = {{"mode", "async"}, {"period", "1"}, {"unowned", "keep"}}},
          {.settings = {{"mode", "async"}, {"period", "2"}, {"masks", "uniform"}}},
          {.settings = {{"mode", "async"}, {"period", "1"}, {"masks", "uniform"}}, .optimiser = kSgd},
          {.settings = {{"mode", "sync"}, {"period", "2"}}},
          {.settings = {{"mode", "sync"}, {"period", "3"}, {"unowned", "keep"}}, .optimiser = kSgd},
          {.settings = {{"mode", "sync"}, {"period", "2"}, {"masks", "uniform"}}},
          {.settings = {{"mode", "sync-once"}, {"period", "4"}}},
          {.settings = {{"mode", "sync-once"}, {"period", "1"}, {"unowned", "keep"}}}};
}

// Who has what is the strategy's choice, and in mode async who hears of whom when is chance: the reference replays it.
reference::Result ist_reference(const Trial& trial, const Outcome& outcome) {
  const Registry registry = Registry::built_in();
  Settings settings("ist", registry.find("ist").options);
  for (const auto& [name, value] : trial.settings) settings.set(name, value);
  const params::Layout layout = trial_perceptron();
  reference::IstOptions options{.period = static_cast<int>(settings.integer("period")),
                                .waits = settings.choice("mode") != "async",
                                .zero_unowned = settings.choice("unowned") == "zero",
                                .taken = outcome.taken};
  const bool uniform = settings.choice("masks") == "uniform";
  options.deals_anew = settings.choice("mode") == "sync" && !uniform && trial.workers > 1;
  for (int deal = 0; deal <= trial.steps / options.period; ++deal) {
    const Masks masks = uniform ? Masks::uniform(layout.size(), trial.workers)
                                : Subnets(layout, trial.workers, trial.seed).deal(static_cast<std::uint64_t>(deal));
    std::vector<reference::IstPart>& parts = options.deals.emplace_back(static_cast<std::size_t>(trial.workers));
    for (int worker = 0; worker < trial.workers; ++worker) {
      for (std::size_t i = 0; i < masks[worker].size(); ++i) {
        parts[static_cast<std::size_t>(worker)].indices.push_back(masks[worker].index(i));
        parts[static_cast<std::size_t>(worker)].values.push_back(static_cast<double>(masks[worker].value(i)));
      }
    }
  }
  return ist(outcome.schedule(trial), options);
}

// Nothing for a strategy that nobody has written a case for.
std::vector<Case> cases_of(const std::string& strategy, int workers) {
  if (strategy == "sequential" || strategy == "sync") return sync_cases();
  if (strategy == "local-sgd") return local_sgd_cases();
  if (strategy == "fedavg") return fedavg_cases();
  if (strategy == "ssp") return ssp_cases();
  if (strategy == "async") return async_cases();
  if (strategy == "downpour") return downpour_cases();
  if (strategy == "agn") return agn_cases();
  if (strategy == "dc-asgd") return dc_asgd_cases();
  if (strategy == "easgd") return elastic_cases(reference::easgd, workers);
  if (strategy == "ea-msgd") return elastic_cases(reference::ea_msgd, workers);
  if (strategy == "ea-wild") return ea_wild_cases(workers);
  if (strategy == "hogwild") return hogwild_cases();
  if (strategy == "dogwild") return dogwild_cases(workers);
  if (strategy == "all-to-all") return all_to_all_cases();
  if (strategy == "neighbours") return neighbours_cases(workers);
  if (strategy == "gosgd") return gosgd_cases(workers);
  if (strategy == "ad-psgd") return ad_psgd_cases(workers);
  if (strategy == "ist") return ist_cases();
  return {};
}

Trial trial_of(const Description& description, const Case& one, const std::string& fabric, int workers) {
  Trial trial{.strategy = description.name, .settings = one.settings, .fabric = fabric, .workers = workers};
  trial.optimiser = one.optimiser;
  trial.servers = description.needs_servers ? 1 : 0;
  if (description.name == "sequential") trial.settings.clear();
  return trial;
}

std::string describe(const Trial& trial) {
  std::string text = fmt::format("{} on {} with {} workers and {}", trial.strategy, trial.fabric, trial.workers, trial.optimiser.name);
  for (const auto& [name, value] : trial.settings) text += fmt::format(", {} = {}", name, value);
  return text;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 2e-6) << what << ", component " << i;
}

// `applied` are those that were applied everywhere they were meant for.
void expect_books_balance(const Outcome& outcome, bool talks_to_nobody = false) {
  EXPECT_TRUE(outcome.balance.balanced) << to_text(outcome.balance);
  if (!talks_to_nobody) {
    EXPECT_GT(outcome.balance.produced, 0U);
  }
  EXPECT_TRUE(outcome.balance.dropped.empty());
  EXPECT_EQ(outcome.balance.applied, outcome.balance.produced);
}

void expect_one_model(const Description& description, const Outcome& outcome) {
  if (description.own_models) {
    EXPECT_EQ(outcome.models, outcome.replicas);
    return;
  }
  for (const std::vector<float>& model : outcome.models) EXPECT_EQ(model, outcome.models[0]);
}

class StrategyTest : public testing::TestWithParam<std::tuple<std::string, std::string, int>> {
 protected:
  StrategyTest() : registry_(Registry::built_in()), description_(registry_.find(std::get<0>(GetParam()))) {}

  const std::string& fabric() const { return std::get<1>(GetParam()); }
  // Where the number of ranks is given, those that are neither servers nor generators.
  int workers() const {
    const int others = (description_.needs_servers ? 1 : 0) + (description_.needs_generator ? 1 : 0);
    return std::get<2>(GetParam()) - (fabric::has_one_process() ? 0 : others);
  }
  bool is_refused() const { return description_.one_worker_only && workers() > 1; }
  // One worker alone has nobody whom an update could be meant for.
  bool talks_to_nobody() const { return description_.places == Places::addressed && workers() == 1; }

  Registry registry_;
  const Description& description_;
};

TEST_P(StrategyTest, GivesWhatItsReferenceGives) {
  if (workers() < 1) return;
  const std::vector<Case> cases = cases_of(description_.name, workers());
  ASSERT_FALSE(cases.empty()) << description_.name << " has no serial reference in this suite";
  for (const Case& one : cases) {
    const Trial trial = trial_of(description_, one, fabric(), workers());
    SCOPED_TRACE(describe(trial));
    if (is_refused()) {
      EXPECT_THROW(run_trial(trial), UserError);
      continue;
    }
    const Outcome outcome = run_trial(trial);
    ASSERT_EQ(outcome.failures, "");
    expect_one_model(description_, outcome);
    expect_books_balance(outcome, talks_to_nobody());
    Schedule schedule = outcome.schedule(trial);
    if (one.by_exchanges) schedule.order = outcome.exchanges;
    const reference::Result expected = one.reference               ? one.reference(schedule)
                                       : description_.trains_parts ? ist_reference(trial, outcome)
                                                                   : fedavg_reference(trial, outcome);
    expect_near(outcome.models[0], expected.model, "the model");
    for (std::size_t worker = 0; worker < expected.replicas.size(); ++worker) {
      expect_near(outcome.replicas[worker], expected.replicas[worker], "a replica");
    }
  }
}

// Every part of the weights is a server's, and has an order of its own. In the simulator the same run can be looked at from each of them.
TEST_P(StrategyTest, EveryServerGivesWhatTheReferenceGivesForItsPart) {
  if (!description_.needs_servers || fabric() != "sim") return;
  constexpr int kServers = 3;
  for (const Case& one : cases_of(description_.name, workers())) {
    Trial trial = trial_of(description_, one, fabric(), workers());
    trial.servers = kServers;
    trial.coupled = false;
    SCOPED_TRACE(describe(trial));
    for (trial.recorded_server = 0; trial.recorded_server < kServers; ++trial.recorded_server) {
      const Outcome outcome = run_trial(trial);
      ASSERT_EQ(outcome.failures, "");
      expect_one_model(description_, outcome);
      expect_books_balance(outcome, talks_to_nobody());
      Schedule schedule = outcome.schedule(trial);
      if (one.by_exchanges) schedule.order = outcome.exchanges;
      const reference::Result expected = one.reference(schedule);
      const collective::Slice part = collective::slice_of(expected.model.size(), kServers, trial.recorded_server);
      for (std::size_t i = part.begin; i < part.begin + part.size; ++i) {
        EXPECT_NEAR(outcome.models[0][i], expected.model[i], 2e-6) << "component " << i << ", server " << trial.recorded_server;
      }
    }
  }
}

// As at a checkpoint of a run: all drain and learn the result so far, then go on. New objects find in what the old ones listed all they
// need. Where workers wait for each other in every step, nobody can tell the difference from the result.
TEST_P(StrategyTest, GoesOnAfterAFinish) {
  if (is_refused() || workers() < 1) return;
  for (const Case& one : cases_of(description_.name, workers())) {
    Trial trial = trial_of(description_, one, fabric(), workers());
    SCOPED_TRACE(describe(trial));
    // One worker alone meets nobody; but who accumulates over several steps pushes earlier, and fetches when it begins anew.
    const bool accumulates = description_.name == "downpour" || description_.name == "agn";
    const bool waits = description_.lockstep || (description_.name == "ist" && one.settings.at("mode") != "async");
    const bool same = (waits || workers() == 1) && !accumulates;
    const Outcome whole = run_trial(trial);
    trial.pauses = {2, 5, 9};
    for (const bool new_objects : {false, true}) {
      SCOPED_TRACE(new_objects ? "with new objects" : "with the same objects");
      trial.new_objects = new_objects;
      const Outcome outcome = run_trial(trial);
      ASSERT_EQ(outcome.failures, "");
      expect_one_model(description_, outcome);
      expect_books_balance(outcome, talks_to_nobody());
      if (!same) continue;
      EXPECT_EQ(outcome.models, whole.models);
      EXPECT_EQ(outcome.replicas, whole.replicas);
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  const Registry registry = Registry::built_in();
  for (const Description& description : registry.all()) result.push_back(description.name);
  return result;
}

std::string test_name(const testing::TestParamInfo<std::tuple<std::string, std::string, int>>& info) {
  std::string name = fmt::format("{}_{}_{}_workers", std::get<0>(info.param), std::get<1>(info.param), std::get<2>(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Sixteen workers of every strategy would take long, and show nothing that eight do not.
std::vector<int> rank_counts() {
  std::vector<int> counts = fabric::rank_counts();
  std::erase_if(counts, [](int count) { return count > 8; });
  return counts;
}

INSTANTIATE_TEST_SUITE_P(, StrategyTest,
                         testing::Combine(testing::ValuesIn(names()), testing::ValuesIn(fabric::fabric_names()),
                                          testing::ValuesIn(rank_counts())),
                         test_name);

// Several updates arrive before one worker has started, and not in the order of the ranks. Those that wait keep the order of arrival.
TEST(StrategySuite, UpdatesThatWaitForALateStartAreAppliedAsTheyCame) {
  using namespace std::chrono_literals;
  Trial trial{.strategy = "ssp", .settings = {{"staleness_lr", "inverse-plus-one"}}, .workers = 4, .servers = 1};
  trial.adjust = [](fabric::SimOptions& sim) {
    sim.network.rules = {{.from = fabric::RankSet{1}, .latency = 50ms}};
    sim.speeds = {{.ranks = fabric::RankSet{0}, .factor = 0.1}, {.ranks = fabric::RankSet{2}, .factor = 0.3}};
  };
  const Outcome outcome = run_trial(trial);
  ASSERT_EQ(outcome.failures, "");
  const Schedule schedule = started_together(damped(outcome.schedule(trial), Damping::by_staleness_plus_one));
  expect_near(outcome.models[0], ssp(schedule, 2).model, "the model");
}

// Worker 0 is slow to write the first weights; nobody may read, or add to, what is not there yet.
TEST(StrategySuite, SharedWeightsAreNotUsedBeforeTheyAreThere) {
  using namespace std::chrono_literals;
  for (const char* fabric : {"sim", "threads"}) {
    Trial trial{.strategy = "hogwild", .fabric = fabric, .workers = 3};
    trial.before_write = 20ms;
    const Outcome hogwild = run_trial(trial);
    ASSERT_EQ(hogwild.failures, "");
    expect_near(hogwild.models[0], reference::hogwild(damped(hogwild.schedule(trial), Damping::by_staleness)).model, "hogwild");
    trial.strategy = "ea-wild";
    const Outcome wild = run_trial(trial);
    ASSERT_EQ(wild.failures, "");
    expect_near(wild.models[0], ea_wild(wild.schedule(trial), {.alpha = 0.9 / 3}).model, "ea-wild");
  }
}

// A codec holds something back, and a new object must find it. Where nobody is met out of turn, the result shows it.
TEST(StrategySuite, GoesOnAfterAFinishWithWhatACodecHeldBack) {
  const Registry registry = Registry::built_in();
  for (const Description& description : registry.all()) {
    if (description.sends != Sends::gradients && description.sends != Sends::deltas) continue;
    for (const char* codec : {"topk:0.25", "int8", "powersgd:1"}) {
      SCOPED_TRACE(fmt::format("{} with {}", description.name, codec));
      Trial trial{.strategy = description.name, .workers = description.lockstep ? 3 : 1};
      trial.servers = description.needs_servers ? 2 : 0;
      trial.optimiser = kMomentum;
      trial.codec = codec;
      if (description.name == "downpour") trial.settings = {{"n_push", "1"}, {"n_fetch", "1"}};
      if (description.name == "agn") trial.settings = {{"k", "1"}};
      if (description.name == "local-sgd" || description.name == "fedavg") trial.settings = {{"period", "2"}};
      const Outcome whole = run_trial(trial);
      trial.pauses = {2, 5};
      trial.new_objects = true;
      const Outcome outcome = run_trial(trial);
      ASSERT_EQ(outcome.failures, "");
      EXPECT_EQ(outcome.models, whole.models);
      trial.codec = "fp32";
      EXPECT_NE(run_trial(trial).models, whole.models) << "the codec changes nothing, so this shows nothing";
    }
  }
}

// The rest does not show in a result that can be compared: after a checkpoint workers pull anew, so they meet in another order.
TEST(StrategySuite, ListsWhatMustBeFoundAgain) {
  const auto state_of = [](const std::string& strategy, const std::map<std::string, std::string>& settings, int servers) {
    Trial trial{.strategy = strategy, .settings = settings, .workers = 2, .servers = servers};
    trial.optimiser = kMomentum;
    return run_trial(trial).state;
  };
  using Names = std::set<std::string>;
  const Names momentum{"optimizer/momentum", "optimizer/steps"};
  const Names none;
  EXPECT_EQ(state_of("async", {}, 1), (std::vector<Names>{none, none, momentum}));
  EXPECT_EQ(state_of("dc-asgd", {}, 1), (std::vector<Names>{none, none, momentum}));
  Names adaptive = momentum;
  adaptive.insert("mean_square");
  EXPECT_EQ(state_of("dc-asgd", {{"adaptive", "true"}}, 1), (std::vector<Names>{none, none, adaptive}));
  for (const char* strategy : {"ssp", "downpour", "agn", "easgd", "ea-msgd"}) {
    EXPECT_EQ(state_of(strategy, {}, 1), (std::vector<Names>{momentum, momentum, none})) << strategy;
  }
  EXPECT_EQ(state_of("ea-wild", {}, 0), (std::vector<Names>{momentum, momentum}));
  EXPECT_EQ(state_of("hogwild", {}, 0), (std::vector<Names>{momentum, momentum}));
  const Names no_momentum{"optimizer/steps"};
  EXPECT_EQ(state_of("hogwild", {{"momentum", "none"}}, 0), (std::vector<Names>{no_momentum, no_momentum}));
  Names gossip = momentum;
  gossip.insert({"steps_of_0", "steps_of_1"});
  Names weighted = gossip;
  weighted.insert("alpha_bits");
  EXPECT_EQ(state_of("gosgd", {}, 0), (std::vector<Names>{weighted, weighted}));
  gossip.insert("steps");
  EXPECT_EQ(state_of("ad-psgd", {}, 0), (std::vector<Names>{gossip, gossip}));
  Names counted = momentum;
  counted.insert("steps");
  for (const char* mode : {"sync", "sync-once", "async"}) {
    EXPECT_EQ(state_of("ist", {{"mode", mode}}, 0), (std::vector<Names>{counted, counted})) << mode;
  }
}

// Otherwise the comparisons above would say little.
TEST(StrategySuite, OrdersAreNotThoseOfTheRanks) {
  const Outcome outcome = run_trial({.strategy = "async", .workers = 5, .servers = 1});
  std::vector<int> pushes;
  for (const reference::Event& event : outcome.events) {
    if (event.kind == reference::Kind::push) pushes.push_back(event.worker);
  }
  ASSERT_EQ(pushes.size(), 45U);
  int out_of_turn = 0;
  for (std::size_t i = 1; i < pushes.size(); ++i) out_of_turn += pushes[i] != (pushes[i - 1] + 1) % 5 ? 1 : 0;
  EXPECT_GT(out_of_turn, 15);
  EXPECT_GT(outcome.balance.version_staleness.max(), 4U);
  const Outcome wild = run_trial({.strategy = "ea-wild", .workers = 5});
  int reads_between = 0;
  std::set<int> about_to_add;  // Have read.
  for (const reference::Event& event : wild.events) {
    if (event.kind == reference::Kind::read) reads_between += about_to_add.empty() ? 0 : 1, about_to_add.insert(event.worker);
    if (event.kind == reference::Kind::add) about_to_add.erase(event.worker);
  }
  EXPECT_GT(reads_between, 0) << "nobody reads the centre between another's read and addition";
  const Outcome hogwild = run_trial({.strategy = "hogwild", .workers = 5});
  EXPECT_GT(hogwild.balance.version_staleness.max(), 4U);
}

}  // namespace
}  // namespace starling::strategy
