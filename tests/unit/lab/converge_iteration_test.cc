// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_iteration.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/lab/converge_bound.h"

namespace starling::lab {
namespace {

TEST(ConvergeSchedule, ReadsAndWritesDelays) {
  for (const char* text : {"none", "bounded:8", "bounded:0", "growing:0.25"}) EXPECT_EQ(Delays::parse(text).text(), text);
  EXPECT_EQ(Delays::parse("growing").text(), "growing:0.5");
  for (const char* text : {"", "bounded", "bounded:", "bounded:-1", "bounded:1.5", "bounded:9999999", "growing:0", "growing:1", "growing:x",
                           "none:1", "late"}) {
    EXPECT_THROW(Delays::parse(text), UserError) << text;
  }
  EXPECT_EQ(parse_choice("cyclic"), Choice::cyclic);
  EXPECT_THROW(parse_choice("cyclical"), UserError);
}

// What every drawn schedule promises, of each step.
TEST(ConvergeSchedule, KeepsItsPromises) {
  for (const Choice choice : {Choice::all, Choice::cyclic, Choice::one, Choice::random}) {
    for (const char* delays : {"none", "bounded:7", "growing:0.5"}) {
      DrawnSchedule schedule({.blocks = 5, .choice = choice, .delays = Delays::parse(delays), .idle_block = 2, .seed = 3});
      std::vector<int> updates(5, 0);
      std::uint64_t largest_delay = 0;
      for (std::uint64_t step = 1; step <= 500; ++step) {
        const std::uint64_t oldest = schedule.oldest_label(step);
        const std::vector<BlockUpdate> now = schedule.updates(step);
        EXPECT_FALSE(now.empty());
        if (choice == Choice::all) {
          EXPECT_EQ(now.size(), 4);
        }
        if (choice == Choice::cyclic || choice == Choice::one) {
          EXPECT_EQ(now.size(), 1);
        }
        for (const BlockUpdate& update : now) {
          ++updates[update.block];
          EXPECT_EQ(update.labels[update.block], step - 1) << "a block reads its own newest value";
          for (const std::uint64_t label : update.labels) {
            EXPECT_LT(label, step);
            EXPECT_GE(label, oldest);
            largest_delay = std::max(largest_delay, step - 1 - label);
          }
        }
      }
      EXPECT_EQ(updates[2], 0) << "the idle block";
      for (const std::size_t block : {0U, 1U, 3U, 4U}) EXPECT_GT(updates[block], 80);
      if (std::string(delays) == "none") {
        EXPECT_EQ(largest_delay, 0);
      }
      if (std::string(delays) == "bounded:7") {
        EXPECT_EQ(largest_delay, 7);
      }
      if (std::string(delays) == "growing:0.5") {
        EXPECT_GT(largest_delay, 200);
      }
    }
  }
}

TEST(ConvergeSchedule, RefusesAnIdleBlockThatDoesNotExist) {
  EXPECT_THROW(DrawnSchedule({.blocks = 4, .idle_block = 4}), UserError);
  EXPECT_THROW(DrawnSchedule({.blocks = 1, .idle_block = 0}), UserError);
}

// The definition, word for word, without a thought for speed.
std::vector<std::uint64_t> plain_macro_iterations(const std::vector<UpdateRecord>& updates, std::size_t blocks, std::uint64_t steps) {
  std::vector<std::uint64_t> times{0};
  while (true) {
    std::uint64_t found = 0;
    for (std::uint64_t k = times.back() + 1; k <= steps && found == 0; ++k) {
      bool good = true;
      for (std::size_t block = 0; block < blocks && good; ++block) {
        const UpdateRecord* value = nullptr;  // What computed the value that the block has at k.
        for (const UpdateRecord& update : updates) {
          if (update.block != block) continue;
          if (update.step <= k) value = &update;
          if (update.step > k && update.oldest < times.back()) good = false;
        }
        good = good && value != nullptr && value->oldest >= times.back();
      }
      if (good) found = k;
    }
    if (found == 0) return times;
    times.push_back(found);
  }
}

TEST(ConvergeIteration, MacroIterationsAreThoseOfTheDefinition) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    RandomStream stream(seed, 0, "test");
    const std::size_t blocks = 1 + stream.below(4);
    const std::uint64_t steps = 1 + stream.below(60);
    std::vector<UpdateRecord> updates;
    for (std::uint32_t step = 1; step <= steps; ++step) {
      for (std::uint32_t block = 0; block < blocks; ++block) {
        // Labels that go back and forth: an update may read something older than the one before it did.
        if (stream.below(2) == 0)
          updates.push_back({step, block, static_cast<std::uint32_t>(step - 1 - std::min<std::uint64_t>(step - 1, stream.below(6)))});
      }
    }
    EXPECT_EQ(macro_iterations(updates, blocks), plain_macro_iterations(updates, blocks, steps)) << "seed " << seed;
  }
}

TEST(ConvergeIteration, MacroIterationsByHand) {
  // Two blocks in turn, newest values: a sweep is two steps.
  EXPECT_EQ(macro_iterations({{1, 0, 0}, {2, 1, 1}, {3, 0, 2}, {4, 1, 3}}, 2), (std::vector<std::uint64_t>{0, 2, 4}));
  // Block 1 reads at step 5 what was there after step 1: until then nobody is done with it.
  EXPECT_EQ(macro_iterations({{1, 0, 0}, {2, 1, 1}, {3, 0, 2}, {4, 1, 3}, {5, 1, 1}, {6, 0, 5}, {7, 1, 6}}, 2),
            (std::vector<std::uint64_t>{0, 2, 7}));
  // A block without updates: no sweep ever.
  EXPECT_EQ(macro_iterations({{1, 0, 0}, {2, 0, 1}}, 2), (std::vector<std::uint64_t>{0}));
  EXPECT_EQ(macro_iterations({}, 1), (std::vector<std::uint64_t>{0}));
}

TEST(ConvergeIteration, ErrorsOfSweeps) {
  const std::vector<double> errors{8, 3, 5, 1, 2};
  EXPECT_EQ(errors_from(errors, {0, 1, 3}), (std::vector<double>{8, 5, 2}));
  EXPECT_EQ(errors_within(errors, {0, 1, 3}), (std::vector<double>{8, 5, 2}));
  const std::vector<double> growing{1, 2, 4, 8};
  EXPECT_EQ(errors_from(growing, {0, 2}), (std::vector<double>{8, 8}));
  EXPECT_EQ(errors_within(growing, {0, 2}), (std::vector<double>{2, 8}));
}

IterationSetup setup_of(const Problem& problem, std::size_t blocks, Masks masks) {
  IterationSetup setup{.problem = &problem, .blocks = blocks, .masks = masks};
  setup.local_steps.assign(blocks, 1);
  setup.step_size = 1 / problem.largest_diagonal();
  setup.norm = masks == Masks::disjoint ? Norm::max : Norm::l2;
  RandomStream stream(5, 0, "start");
  for (std::size_t i = 0; i < problem.dimension(); ++i) setup.start.push_back(stream.normal());
  return setup;
}

TEST(ConvergeIteration, AllBlocksWithoutDelaysAreGradientDescentBitForBit) {
  for (const std::string& name : problem_names()) {
    const auto problem = make_problem({.name = name, .dimension = 10});
    for (const StepsOn steps_on : {StepsOn::all, StepsOn::block}) {
      IterationSetup setup = setup_of(*problem, 3, Masks::disjoint);
      setup.steps_on = steps_on;
      DrawnSchedule schedule({.blocks = 3, .choice = Choice::all});
      const IterationRecord record = run_iteration(setup, schedule, 25);
      std::vector<double> x = setup.start;
      std::vector<double> slope(10);
      for (int step = 0; step < 25; ++step) {
        problem->gradient(x, 0, 10, slope);
        for (std::size_t i = 0; i < 10; ++i) x[i] -= setup.step_size * slope[i];
      }
      EXPECT_EQ(record.last_state, x) << name;
      EXPECT_EQ(record.updates.size(), 75);
    }
  }
}

// y_l = T^(beta_l)(sum of E_k x_k), written with whole vectors and masks, against the short form that keeps only blocks.
TEST(ConvergeIteration, WholeVectorsWithMasksGiveTheSameIterates) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto problem = make_problem({.name = seed % 2 == 0 ? "quadratic" : "logistic", .dimension = 11, .samples = 40, .seed = seed});
    for (const Masks masks : {Masks::disjoint, Masks::uniform}) {
      for (const char* delays : {"none", "bounded:9", "growing:0.6"}) {
        IterationSetup setup = setup_of(*problem, 3, masks);
        setup.local_steps = {1, 3, 2};
        if (masks == Masks::disjoint && seed % 3 == 0) setup.steps_on = StepsOn::block;
        const ScheduleOptions options{.blocks = 3, .delays = Delays::parse(delays), .seed = seed};
        DrawnSchedule one(options);
        DrawnSchedule two(options);
        const IterationRecord kept = run_iteration(setup, one, 150);
        const IterationRecord whole = run_masked_iteration(setup, make_masks(masks, 11, 3), two, 150);
        if (masks == Masks::disjoint) {
          EXPECT_EQ(kept.errors, whole.errors) << "seed " << seed;
          EXPECT_EQ(kept.last_state, whole.last_state) << "seed " << seed;
        } else {
          for (std::size_t k = 0; k < kept.errors.size(); ++k) EXPECT_NEAR(kept.errors[k], whole.errors[k], 1e-13) << "seed " << seed;
        }
      }
    }
  }
}

// A block that reads the initial value at one step must get just that, although newer ones were there.
TEST(ConvergeIteration, AnUpdateReadsTheValuesOfItsLabels) {
  class ByHand : public Schedule {
   public:
    std::vector<BlockUpdate> updates(std::uint64_t step) override {
      if (step == 1) return {{0, {0, 0}}};
      if (step == 2) return {{1, {1, 0}}};
      if (step == 3) return {{0, {1, 0}}, {1, {0, 2}}};
      return {};
    }
    std::uint64_t oldest_label(std::uint64_t) const override { return 0; }
  };
  SquareMatrix matrix(2);
  matrix.values = {2, 1, 1, 2};
  const QuadraticProblem problem(matrix, {0, 0});
  IterationSetup setup{.problem = &problem, .blocks = 2, .local_steps = {1, 1}, .step_size = 0.5, .start = {4, 8}};
  ByHand schedule;
  // T(x) = (-x_1/2, -x_0/2). Step 1: x_0 = -4. Step 2: x_1 = 2. Step 3: x_0 = -8/2 with the old x_1; x_1 = -4/2 with the old x_0.
  const IterationRecord record = run_iteration(setup, schedule, 4);
  EXPECT_EQ(record.last_state, (std::vector<double>{-4, -2}));
  EXPECT_EQ(record.errors, (std::vector<double>{8, 8, 4, 4, 4}));
  EXPECT_EQ(record.updates.back().oldest, 0);
}

TEST(ConvergeIteration, MasksThatOverlapContractInTheMaxNormToo) {
  const auto problem = make_problem({.dimension = 6});
  IterationSetup setup = setup_of(*problem, 3, Masks::uniform);
  setup.norm = Norm::max;
  // The first block has components 0 to 3, the second 2 to 5, with equal shares where both have them; the third has a little of everything.
  std::vector<std::vector<double>> masks(3, std::vector<double>(6, 0.1));
  for (std::size_t i = 0; i < 6; ++i) {
    masks[0][i] = i < 2 ? 0.9 : i < 4 ? 0.45 : 0;
    masks[1][i] = i < 2 ? 0 : i < 4 ? 0.45 : 0.9;
  }
  const double bound = *contraction_bound(setup).largest;
  DrawnSchedule schedule({.blocks = 3, .delays = Delays::parse("bounded:6"), .seed = 2});
  const IterationRecord record = run_masked_iteration(setup, masks, schedule, 300);
  const std::vector<double> errors = errors_from(record.errors, macro_iterations(record.updates, 3));
  ASSERT_GT(errors.size(), 10);
  for (std::size_t m = 1; m < errors.size(); ++m) EXPECT_LE(errors[m], bound * errors[m - 1] + 1e-14);
}

TEST(ConvergeIteration, MasksMustSumToTheIdentity) {
  EXPECT_NO_THROW(check_masks(make_masks(Masks::disjoint, 7, 3), 7));
  EXPECT_NO_THROW(check_masks(make_masks(Masks::uniform, 7, 3), 7));
  EXPECT_THROW(check_masks({{1, 0}, {0, 0.5}}, 2), BrokenInvariant);
  EXPECT_THROW(check_masks({{2, 1}, {-1, 0}}, 2), BrokenInvariant);
  EXPECT_THROW(check_masks({{1, 1, 1}}, 2), BrokenInvariant);
}

TEST(ConvergeIteration, BlocksCoverEverythingOnce) {
  for (std::size_t dimension = 1; dimension < 20; ++dimension) {
    for (std::size_t blocks = 1; blocks <= dimension; ++blocks) {
      std::size_t end = 0;
      for (std::size_t block = 0; block < blocks; ++block) {
        const BlockRange range = block_range(dimension, blocks, block);
        EXPECT_EQ(range.begin, end);
        EXPECT_GT(range.end, range.begin);
        end = range.end;
      }
      EXPECT_EQ(end, dimension);
    }
  }
}

TEST(ConvergeIteration, ARunThatOverflowsEnds) {
  const auto problem = make_problem({.dimension = 4});
  IterationSetup setup = setup_of(*problem, 2, Masks::disjoint);
  setup.step_size = 100;
  DrawnSchedule schedule({.blocks = 2, .choice = Choice::all});
  const IterationRecord record = run_iteration(setup, schedule, 10000);
  ASSERT_TRUE(record.overflow_step.has_value());
  EXPECT_EQ(record.errors.size(), *record.overflow_step + 1);
}

}  // namespace
}  // namespace starling::lab
