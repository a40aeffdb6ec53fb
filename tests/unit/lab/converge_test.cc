// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <sstream>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/lab/converge_counter_example.h"
#include "starling/lab/converge_report.h"

namespace starling::lab {
namespace {

QuadraticProblem small_problem() {
  SquareMatrix matrix(2);
  matrix.values = {1, 0.25, 0.25, 0.5};
  return {matrix, {1, -1}};
}

// M = I - A = ((0, -1/4), (-1/4, 1/2)): sums of rows 1/4 and 3/4.
TEST(ConvergeBound, FactorsByHand) {
  const QuadraticProblem problem = small_problem();
  IterationSetup setup{.problem = &problem, .blocks = 2, .local_steps = {1, 1}};
  EXPECT_EQ(contraction_bound(setup).factors, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(*contraction_bound(setup).largest, 0.75);
  // Two steps on everything: |M| (1/4, 3/4) = (3/16, 1/16 + 3/8).
  setup.local_steps = {2, 2};
  EXPECT_EQ(contraction_bound(setup).factors, (std::vector<double>{0.1875, 0.4375}));
  // Two steps on the own component, the other standing still: 1/4, and 1/4 + 1/2 · 3/4.
  setup.steps_on = StepsOn::block;
  EXPECT_EQ(contraction_bound(setup).factors, (std::vector<double>{0.25, 0.625}));
  // Uniform masks: every block answers for everything.
  setup = {.problem = &problem, .blocks = 2, .masks = Masks::uniform, .local_steps = {1, 2}};
  EXPECT_EQ(contraction_bound(setup).factors, (std::vector<double>{0.75, 0.4375}));
  // In l2: eigenvalues of M are 1/4 ± √2/4.
  setup.norm = Norm::l2;
  const double factor = 0.25 + std::numbers::sqrt2 / 4;
  EXPECT_NEAR(contraction_bound(setup).factors[0], factor, 1e-15);
  EXPECT_NEAR(contraction_bound(setup).factors[1], factor * factor, 1e-15);
}

TEST(ConvergeBound, SaysWhyThereIsNone) {
  const QuadraticProblem problem = small_problem();
  IterationSetup setup{.problem = &problem, .blocks = 2, .local_steps = {1, 1}, .norm = Norm::l2};
  EXPECT_FALSE(contraction_bound(setup).largest);
  EXPECT_NE(contraction_bound(setup).reason.find("--counter-example"), std::string::npos);
  setup.norm = Norm::max;
  setup.step_size = 4;
  EXPECT_FALSE(contraction_bound(setup).largest);
  EXPECT_NE(contraction_bound(setup).reason.find("max alpha is 4.0000"), std::string::npos) << contraction_bound(setup).reason;
}

TEST(ConvergeBound, TheBestWeightsOfTheLaplaceProblemGiveItsSpectralRadius) {
  const auto problem = make_problem({.name = "laplace", .dimension = 8});
  IterationSetup setup{.problem = problem.get(), .blocks = 4, .local_steps = {1, 1, 1, 1}, .step_size = 0.5};
  EXPECT_FALSE(contraction_bound(setup).largest) << "in the plain max-norm";
  setup.norm = Norm::weighted;
  setup.weights = best_weights(*problem, 0.5);
  EXPECT_NEAR(*contraction_bound(setup).largest, std::cos(std::numbers::pi / 9), 1e-9);
}

ConvergeOptions drawn_options(std::uint64_t seed) {
  RandomStream stream(seed, 0, "options");
  const auto one_of = [&stream](auto... values) {
    const std::array array{values...};
    return array[stream.below(array.size())];
  };
  ConvergeOptions options;
  options.seed = seed;
  options.problem.name = one_of("quadratic", "quadratic", "laplace", "logistic");
  options.problem.dimension = 2 + stream.below(14);
  options.problem.condition = one_of(1.0, 4.0, 30.0);
  options.problem.coupling = one_of(0.0, 0.3, 0.9);
  options.problem.regularisation = one_of(0.02, 0.1, 1.0);
  options.problem.samples = 40;
  options.masks = one_of(Masks::disjoint, Masks::uniform);
  options.blocks = 1 + stream.below(std::min<std::uint64_t>(options.problem.dimension, 6));
  options.choice = one_of(Choice::all, Choice::cyclic, Choice::one, Choice::random);
  options.delays = Delays::parse(one_of("none", "bounded:1", "bounded:10", "growing:0.5", "growing:0.9"));
  options.local_steps.clear();
  for (std::size_t block = 0; block < options.blocks; ++block) options.local_steps.push_back(one_of(1, 1, 2, 7));
  if (options.masks == Masks::disjoint) options.steps_on = one_of(StepsOn::all, StepsOn::block);
  if (stream.below(3) == 0) options.norm = one_of(Norm::max, Norm::weighted, Norm::l2);
  options.iterations = 400;
  return options;
}

// The theorem: whatever the schedule, delays, masks and local steps, no sweep leaves more than max alpha of the error, and the values of
// whole vectors and blocks agree.
TEST(Converge, NoSweepEverExceedsTheBound) {
  int bounded = 0;
  int close = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const ConvergeOptions options = drawn_options(seed);
    const ConvergeResult result = run_converge(options);
    EXPECT_NE(result.outcome, Outcome::contradicted) << "seed " << seed << ": " << result.verdict << "\n" << describe(options, result);
    if (!result.bound.largest || !result.worst_ratio) continue;
    ++bounded;
    EXPECT_LE(*result.worst_ratio, *result.bound.largest + 1e-4) << "seed " << seed;
    if (*result.worst_ratio > 0.95 * *result.bound.largest) ++close;
  }
  EXPECT_GT(bounded, 250) << "most options have a bound";
  EXPECT_GT(close, 20) << "and it is not so wide that anything would obey it";
}

TEST(Converge, EveryScheduleWithEveryDelayConvergesToTheOptimum) {
  for (const char* name : {"quadratic", "logistic"}) {
    for (const Choice choice : {Choice::all, Choice::cyclic, Choice::one, Choice::random}) {
      for (const char* delays : {"none", "bounded:12", "growing:0.5"}) {
        for (const Masks masks : {Masks::disjoint, Masks::uniform}) {
          ConvergeOptions options;
          options.problem.name = name;
          options.problem.dimension = 8;
          options.problem.samples = 40;
          options.choice = choice;
          options.delays = Delays::parse(delays);
          options.masks = masks;
          options.local_steps = {3, 6, 3, 9};
          options.iterations = 1000;
          const ConvergeResult result = run_converge(options);
          EXPECT_EQ(result.outcome, Outcome::converged) << name << " " << to_string(choice) << " " << delays << ": " << result.verdict;
          EXPECT_LT(result.record.errors.back(), 1e-9);
        }
      }
    }
  }
}

TEST(Converge, AnIdleBlockDoesNotConvergeAndIsNamed) {
  for (const Masks masks : {Masks::disjoint, Masks::uniform}) {
    for (const char* delays : {"none", "bounded:5", "growing:0.5"}) {
      ConvergeOptions options;
      options.masks = masks;
      options.delays = Delays::parse(delays);
      options.idle_block = 2;
      const ConvergeResult result = run_converge(options);
      EXPECT_EQ(result.outcome, Outcome::idle);
      EXPECT_EQ(result.verdict.find("does not converge: block 2 is never updated: its error stays "), 0) << result.verdict;
      EXPECT_EQ(result.record.last_block_errors[2], result.record.first_block_errors[2]);
      EXPECT_EQ(result.sweeps.size(), 1) << "no sweep is ever completed";
      for (const double error : result.record.last_block_errors) EXPECT_GT(error, 1e-3) << "the others settle elsewhere";
    }
  }
}

TEST(Converge, WithDelaysThatGrowSweepsGetLongerAndLonger) {
  ConvergeOptions options;
  options.delays = Delays::parse("growing");
  options.iterations = 20000;
  const ConvergeResult result = run_converge(options);
  ASSERT_GT(result.sweeps.size(), 10);
  const auto length = [&result](std::size_t m) { return static_cast<double>(result.sweeps[m].step - result.sweeps[m - 1].step); };
  for (std::size_t m = 6; m < result.sweeps.size(); ++m) EXPECT_NEAR(length(m) / length(m - 1), 2, 0.3) << m;
  EXPECT_EQ(result.outcome, Outcome::converged);
}

TEST(Converge, ABoundThatDoesNotHoldIsNoticed) {
  ConvergeOptions options;
  options.problem.name = "laplace";
  options.problem.dimension = 8;
  ConvergeResult result = run_converge(options);
  EXPECT_EQ(result.outcome, Outcome::converged);
  result.bound.largest = *result.bound.largest - 0.02;
  judge(options, result);
  EXPECT_EQ(result.outcome, Outcome::contradicted);
  EXPECT_NE(result.verdict.find("contradicts the theory: sweep "), std::string::npos) << result.verdict;
}

TEST(Converge, AnIdleBlockThatMovesIsNoticed) {
  ConvergeOptions options;
  ConvergeResult result = run_converge(options);
  options.idle_block = 1;
  judge(options, result);
  EXPECT_EQ(result.outcome, Outcome::contradicted) << result.verdict;
}

TEST(Converge, SaysWhatItCannotDecide) {
  ConvergeOptions options;
  options.iterations = 2;
  options.choice = Choice::cyclic;
  ConvergeResult result = run_converge(options);
  EXPECT_EQ(result.outcome, Outcome::undecided);
  EXPECT_NE(result.verdict.find("block 2 was not updated yet"), std::string::npos) << result.verdict;
  options.iterations = 20;
  result = run_converge(options);
  EXPECT_EQ(result.outcome, Outcome::contracting) << result.verdict;
  options.step_size = 5;
  options.iterations = 2000;
  result = run_converge(options);
  EXPECT_EQ(result.outcome, Outcome::unpromised);
  EXPECT_EQ(result.verdict.find("diverges: "), 0) << result.verdict;
}

TEST(Converge, TheSeedDecidesEverything) {
  ConvergeOptions options;
  options.delays = Delays::parse("bounded:8");
  const ConvergeResult one = run_converge(options);
  const ConvergeResult again = run_converge(options);
  options.seed = 2;
  const ConvergeResult other = run_converge(options);
  EXPECT_EQ(to_csv(one), to_csv(again));
  EXPECT_EQ(to_svg(convergence_plot(options, one)), to_svg(convergence_plot(options, again)));
  EXPECT_NE(to_csv(one), to_csv(other));
}

TEST(Converge, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) {
    ConvergeOptions options;
    change(options);
    EXPECT_THROW(run_converge(options), UserError);
  };
  refused([](ConvergeOptions& options) { options.blocks = 0; });
  refused([](ConvergeOptions& options) { options.blocks = 17; });
  refused([](ConvergeOptions& options) { options.iterations = 0; });
  refused([](ConvergeOptions& options) { options.iterations = 1000001; });
  refused([](ConvergeOptions& options) { options.local_steps = {1, 2}; });
  refused([](ConvergeOptions& options) { options.local_steps = {0}; });
  refused([](ConvergeOptions& options) { options.step_size = 0; });
  refused([](ConvergeOptions& options) { options.step_size = std::nan(""); });
  refused([](ConvergeOptions& options) { options.tolerance = 0; });
  refused([](ConvergeOptions& options) { options.idle_block = 4; });
  refused([](ConvergeOptions& options) {
    options.masks = Masks::uniform;
    options.steps_on = StepsOn::block;
  });
  refused([](ConvergeOptions& options) {
    options.problem.dimension = 256;
    options.delays = Delays::parse("growing");
    options.iterations = 1000000;
  });
  EXPECT_THROW(parse_masks("disjunct"), UserError);
  EXPECT_THROW(parse_norm("l1"), UserError);
  EXPECT_THROW(parse_steps_on("some"), UserError);
}

TEST(ConvergeReport, TheTableIsThinnedAndTheCsvIsNot) {
  ConvergeOptions options;
  options.problem.name = "laplace";
  options.problem.dimension = 8;
  const ConvergeResult result = run_converge(options);
  ASSERT_GT(*result.converged_at, 100);
  const std::string table = sweep_table(options, result, 10);
  EXPECT_LE(std::count(table.begin(), table.end(), '\n'), 13);
  const std::string csv = to_csv(result);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2002);
  EXPECT_EQ(csv.find("step,sweep,error,allowed\n0,0,"), 0);
}

// Every line of the CSV obeys what it says is allowed, beyond rounding.
TEST(ConvergeReport, NoErrorOfTheCsvIsLargerThanAllowed) {
  ConvergeOptions options;
  options.delays = Delays::parse("bounded:8");
  const ConvergeResult result = run_converge(options);
  std::istringstream lines(to_csv(result));
  std::string line;
  std::getline(lines, line);
  int count = 0;
  while (std::getline(lines, line)) {
    const std::size_t third = line.rfind(',');
    const std::size_t second = line.rfind(',', third - 1);
    EXPECT_LE(std::stod(line.substr(second + 1)), std::stod(line.substr(third + 1)) + 1e-12) << line;
    ++count;
  }
  EXPECT_EQ(count, 2001);
}

TEST(ConvergeReport, TheIdleBlockIsShownAmongMany) {
  ConvergeOptions options;
  options.blocks = 12;
  options.idle_block = 11;
  const ConvergeResult result = run_converge(options);
  EXPECT_NE(sweep_table(options, result).find("idle 11"), std::string::npos);
  EXPECT_NE(to_svg(convergence_plot(options, result)).find("block 11, never updated"), std::string::npos);
}

TEST(ConvergeCounterExample, TheSumIsLongerThanEveryPart) {
  const CounterExample example = make_counter_example();
  EXPECT_EQ(example.combined, (std::vector<double>{1, 1}));
  EXPECT_EQ(example.largest_l2, 1);
  EXPECT_DOUBLE_EQ(example.combined_l2, std::numbers::sqrt2);
  EXPECT_EQ(example.combined_max, 1);
  EXPECT_EQ(example.largest_max, 1);
}

TEST(ConvergeCounterExample, AStepThatContractsInL2DivergesWithDisjointMasks) {
  const CounterExample example = make_counter_example();
  EXPECT_NEAR(example.l2_factor, 0.9, 1e-15);
  EXPECT_NEAR(example.max_factor, 0.9 * std::numbers::sqrt2, 1e-12);
  EXPECT_EQ(example.largest_delay, 5);
  EXPECT_NEAR(growth_per_sweep(example.alone), 0.9, 1e-12);
  EXPECT_LT(growth_per_sweep(example.uniform), 0.9);
  for (std::size_t m = 1; m < example.uniform.size(); ++m) EXPECT_LE(example.uniform[m], 0.9 * example.uniform[m - 1] + 0.1) << m;
  EXPECT_GT(growth_per_sweep(example.disjoint), 1.2);
  EXPECT_GT(example.disjoint.back(), 1e4);
  EXPECT_EQ(counter_example_plot(example).series.size(), 3);
}

}  // namespace
}  // namespace starling::lab
