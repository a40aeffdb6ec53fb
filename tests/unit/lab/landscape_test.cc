// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/landscape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/compute/model.h"
#include "starling/data/dataset.h"
#include "starling/run/evaluation.h"

namespace starling::lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A bowl whose loss is known everywhere: the sum of (i + 1) (w_i - 0.5)².
double bowl(std::span<const float> weights) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += static_cast<double>(i + 1) * std::pow(static_cast<double>(weights[i]) - 0.5, 2);
  return sum;
}

class Bowl final : public compute::Replica {
 public:
  explicit Bowl(std::size_t size, double edge = kInfinity) : weights_(size), gradient_(size), edge_(edge) {
    layout_.add("w", {static_cast<std::int64_t>(size)});
  }
  const params::Layout& layout() const override { return layout_; }
  std::span<float> weights() override { return weights_; }
  std::span<float> gradient() override { return gradient_; }
  double compute_gradient(const data::Batch&) override { return 0; }
  compute::Evaluation evaluate(const data::Batch& batch, std::span<std::int32_t>) override {
    const double loss = bowl(weights_);
    return {.loss_sum = (loss > edge_ ? kInfinity : loss) * static_cast<double>(batch.size()), .samples = batch.size()};
  }
  double operations_per_sample() const override { return 1; }
  std::string describe() const override { return "bowl"; }

 private:
  params::Layout layout_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
  double edge_;  // Beyond this the loss is infinite.
};

MakeReplica bowls(std::size_t size, double edge = kInfinity) {
  return [=] { return std::make_unique<Bowl>(size, edge); };
}

data::Samples four_numbers() {
  return {.count = 4, .floats = {0, 0, 0, 0}, .standardisation = {{}}, .targets = {0, 0, 0, 0}, .outputs = 1};
}

WeightTrajectory trajectory_of(const std::string& name, const std::vector<std::vector<float>>& points) {
  WeightTrajectory trajectory{.name = name};
  for (std::size_t i = 0; i < points.size(); ++i) {
    trajectory.snapshots.push_back({.step = 10 * i, .epoch = 0.5 * static_cast<double>(i), .samples = 640 * i, .weights = points[i]});
  }
  return trajectory;
}

std::string message_of(const std::vector<WeightTrajectory>& trajectories, const MakeReplica& make_replica) {
  try {
    static_cast<void>(make_landscape(trajectories, four_numbers(), make_replica, {.grid = 3}));
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// Four points around (0, …, 0) in the directions 3 and 1, which are the axes then: so all is known.
TEST(Landscape, TheGridHasTheLossOfABowl) {
  std::vector<std::vector<float>> points(4, std::vector<float>(5));
  points[0][3] = 2;
  points[1][3] = -2;
  points[2][1] = 1;
  points[3][1] = -1;
  const auto landscape =
      make_landscape({trajectory_of("a", points)}, four_numbers(), bowls(5), {.title = "bowl", .grid = 7, .margin = 0.5});
  ASSERT_TRUE(landscape);
  EXPECT_EQ(landscape->title, "bowl");
  EXPECT_EQ(landscape->samples, 4u);
  EXPECT_EQ(landscape->weights, 5u);
  EXPECT_NEAR(landscape->explained_variance[0], 0.8, 1e-12);
  EXPECT_NEAR(landscape->explained_variance[1], 0.2, 1e-12);
  ASSERT_EQ(landscape->x.size(), 7u);
  ASSERT_EQ(landscape->y.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_NEAR(landscape->x[i], -4 + 8.0 * static_cast<double>(i) / 6, 1e-12);  // From -2 to 2, and half of that width on both sides.
    EXPECT_NEAR(landscape->y[i], -2 + 4.0 * static_cast<double>(i) / 6, 1e-12);
  }
  ASSERT_EQ(landscape->grid.size(), 7u);
  for (std::size_t row = 0; row < 7; ++row) {
    ASSERT_EQ(landscape->grid[row].size(), 7u);
    for (std::size_t column = 0; column < 7; ++column) {
      std::vector<float> weights(5);
      weights[3] = static_cast<float>(landscape->x[column]);
      weights[1] = static_cast<float>(landscape->y[row]);
      EXPECT_NEAR(landscape->grid[row][column], bowl(weights), 1e-5);
    }
  }
  EXPECT_TRUE(landscape->notes.empty());
  ASSERT_EQ(landscape->trajectories.size(), 1u);
  const LandscapePoint& third = landscape->trajectories[0].points.at(2);
  EXPECT_EQ(third.step, 20u);
  EXPECT_EQ(third.epoch, 1);
  EXPECT_EQ(third.samples, 1280u);
  EXPECT_NEAR(third.x, 0, 1e-12);
  EXPECT_NEAR(third.y, 1, 1e-12);
  EXPECT_FALSE(third.accuracy);
}

TEST(Landscape, SnapshotsHaveTheLossOfTheirOwnWeightsNotOfTheirProjection) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    RandomStream stream(seed, 0, "test");
    std::vector<std::vector<float>> points(9, std::vector<float>(30));
    for (auto& point : points) {
      for (float& value : point) value = static_cast<float>(stream.normal());
    }
    const std::vector<std::vector<float>> others(points.begin() + 5, points.end());
    points.resize(5);
    const auto landscape = make_landscape({trajectory_of("a", points), trajectory_of("b", others)}, four_numbers(), bowls(30), {.grid = 2});
    ASSERT_TRUE(landscape);
    ASSERT_EQ(landscape->trajectories.size(), 2u);
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_NEAR(landscape->trajectories[0].points.at(i).loss, bowl(points[i]), 1e-9) << "seed " << seed;
    }
    for (std::size_t i = 0; i < others.size(); ++i) {
      EXPECT_NEAR(landscape->trajectories[1].points.at(i).loss, bowl(others[i]), 1e-9) << "seed " << seed;
    }
    EXPECT_LT(landscape->explained_variance[0] + landscape->explained_variance[1], 0.9) << "seed " << seed;  // Not a plane.
  }
}

struct RealProblem {
  data::Dataset dataset = data::load_dataset("blobs:classes=3,samples=300", "");
  std::string model = "dense 8, batchnorm, relu, dense 3";

  std::unique_ptr<compute::Replica> replica(std::uint64_t seed = 1) const {
    return compute::make_replica(model, compute::Problem::of(dataset.test), seed, 0);
  }
  // The first weights of so many seeds, and statistics of batch norm that are not all equal.
  WeightTrajectory trajectory(std::size_t count) const {
    std::vector<std::vector<float>> points;
    for (std::size_t i = 0; i < count; ++i) {
      const auto made = replica(i + 1);
      std::vector<std::uint32_t> indices(64);
      std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(i));
      static_cast<void>(made->compute_gradient({.samples = &dataset.train, .indices = indices}));
      points.emplace_back(made->weights().begin(), made->weights().end());
    }
    return trajectory_of("real", points);
  }
};

// Two snapshots are on a line: without a margin they are ends of the grid's middle row, so that both losses must agree. The model has
// buffers, which belong to the vector as all else does.
TEST(Landscape, WhereTheGridMeetsASnapshotTheyAgree) {
  const RealProblem problem;
  const WeightTrajectory trajectory = problem.trajectory(2);
  ASSERT_GT(problem.replica()->layout().size(), problem.replica()->layout().parameter_count());
  const auto landscape = make_landscape({trajectory}, problem.dataset.test, [&] { return problem.replica(); }, {.grid = 3, .margin = 0});
  ASSERT_TRUE(landscape);
  EXPECT_EQ(landscape->notes, (std::vector<std::string>{"all snapshots lie on a line: the second axis is any that is orthogonal to it"}));
  EXPECT_NEAR(landscape->explained_variance[0], 1, 1e-12);
  EXPECT_NEAR(landscape->y[2] - landscape->y[0], landscape->x[2] - landscape->x[0], 1e-9);
  for (const LandscapePoint& point : landscape->trajectories[0].points) {
    const std::size_t column = point.x < 0 ? 0 : 2;
    EXPECT_NEAR(point.x, landscape->x[column], 1e-9);
    EXPECT_NEAR(point.loss, landscape->grid[1][column], 1e-5 * point.loss);
    ASSERT_TRUE(point.accuracy);
  }
  const auto replica = problem.replica();
  std::copy(trajectory.snapshots[1].weights.begin(), trajectory.snapshots[1].weights.end(), replica->weights().begin());
  const compute::Evaluation expected = run::evaluate(*replica, problem.dataset.test, {});
  EXPECT_EQ(landscape->trajectories[0].points[1].loss, expected.loss_sum / static_cast<double>(expected.samples));
  EXPECT_EQ(*landscape->trajectories[0].points[1].accuracy, static_cast<double>(expected.correct) / static_cast<double>(expected.samples));
}

TEST(Landscape, TheNumberOfJobsChangesNoByte) {
  const RealProblem problem;
  const std::vector<WeightTrajectory> trajectories{problem.trajectory(5)};
  const auto texts = [&](int jobs) {
    const auto landscape = make_landscape(trajectories, problem.dataset.test, [&] { return problem.replica(); }, {.grid = 6, .jobs = jobs});
    return std::vector<std::string>{to_json(*landscape), grid_to_csv(*landscape), trajectories_to_csv(*landscape)};
  };
  const std::vector<std::string> one = texts(1);
  for (const int jobs : {2, 3, 60}) EXPECT_EQ(texts(jobs), one) << jobs;
}

TEST(Landscape, ProgressCountsEveryEvaluation) {
  const RealProblem problem;
  std::vector<std::size_t> done;
  std::size_t all = 0;
  LandscapeOptions options{.grid = 3, .jobs = 2};
  options.progressed = [&](std::size_t number, std::size_t of) {
    done.push_back(number);
    all = of;
  };
  ASSERT_TRUE(make_landscape(
      {problem.trajectory(4)}, problem.dataset.test, [&] { return problem.replica(); }, options));
  EXPECT_EQ(all, 13u);
  std::vector<std::size_t> expected(13);
  std::iota(expected.begin(), expected.end(), std::size_t{1});
  EXPECT_EQ(done, expected);
}

TEST(Landscape, StoppedItEndsAtOnceAndHasNoResult) {
  const RealProblem problem;
  for (const int jobs : {1, 2}) {
    std::atomic<int> asked{0};
    LandscapeOptions options{.grid = 100, .jobs = jobs};
    options.stop = [&] { return ++asked > 7; };
    EXPECT_FALSE(make_landscape(
        {problem.trajectory(3)}, problem.dataset.test, [&] { return problem.replica(); }, options));
    EXPECT_LE(asked, 7 + jobs);
  }
}

TEST(Landscape, AnEvaluationThatFailsEndsTheWork) {
  class Broken final : public compute::Replica {
   public:
    Broken() { layout_.add("w", {3}); }
    const params::Layout& layout() const override { return layout_; }
    std::span<float> weights() override { return weights_; }
    std::span<float> gradient() override { return weights_; }
    double compute_gradient(const data::Batch&) override { return 0; }
    compute::Evaluation evaluate(const data::Batch&, std::span<std::int32_t>) override { throw UserError("out of memory"); }
    double operations_per_sample() const override { return 1; }
    std::string describe() const override { return "broken"; }

   private:
    params::Layout layout_;
    std::vector<float> weights_ = std::vector<float>(3);
  };
  EXPECT_EQ(message_of({trajectory_of("a", {{1, 2, 3}, {2, 2, 2}})}, [] { return std::make_unique<Broken>(); }), "out of memory");
}

TEST(Landscape, SaysWhatIsWrongWithTheSnapshots) {
  const auto expect = [](const std::vector<WeightTrajectory>& trajectories, const std::string& part, std::size_t size = 2) {
    const std::string message = message_of(trajectories, bowls(size));
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect({trajectory_of("a", {{1, 2}, {2, 1}}), trajectory_of("runs/b", {{1, 2, 3}})},
         "the snapshot of step 0 of 'runs/b' has 3 weights, but the model has 2: it is of another model");
  expect({trajectory_of("a", {{1, 2}})}, "there is only one snapshot of finite weights, but a way needs at least two: keep more with");
  expect({trajectory_of("a", {{NAN, 2}})}, "there is no snapshot of finite weights");
  expect({trajectory_of("a", {{0.1f, 2}, {0.1f, 2}}), trajectory_of("b", {{0.1f, 2}})}, "all 3 snapshots are equal");
  expect({trajectory_of("a", {{1}, {2}})}, "the model has a single weight", 1);
}

TEST(Landscape, SnapshotsThatAreNotFiniteAreLeftOutAndNoted) {
  const std::vector<std::vector<float>> finite{{1, 2, 3}, {2, 2, 2}, {3, 1, 2}};
  std::vector<std::vector<float>> some = finite;
  some.insert(some.begin() + 1, {1, NAN, 1});
  some.push_back({1, 1, INFINITY});
  const auto expected = make_landscape({trajectory_of("a", finite)}, four_numbers(), bowls(3), {.grid = 3});
  const auto landscape = make_landscape({trajectory_of("a", some)}, four_numbers(), bowls(3), {.grid = 3});
  ASSERT_TRUE(landscape);
  EXPECT_EQ(landscape->grid, expected->grid);
  ASSERT_EQ(landscape->trajectories[0].points.size(), 3u);
  EXPECT_EQ(landscape->trajectories[0].points[1].step, 20u);
  ASSERT_EQ(landscape->notes.size(), 2u);
  EXPECT_EQ(landscape->notes[0], "the snapshot of step 10 of 'a' has weights that are not finite: left out");
}

TEST(Landscape, LossesThatAreNotFiniteAreNullInJsonAndNamedInCsv) {
  const auto landscape =
      make_landscape({trajectory_of("a \"b\", c", {{0, 0}, {1, 0}, {0, 1}})}, four_numbers(), bowls(2, 3), {.grid = 5, .margin = 1});
  ASSERT_TRUE(landscape);
  const nlohmann::json json = nlohmann::json::parse(to_json(*landscape));
  std::size_t nulls = 0;
  for (const auto& row : json["grid"]) nulls += static_cast<std::size_t>(std::count(row.begin(), row.end(), nullptr));
  EXPECT_GT(nulls, 0u);
  EXPECT_LT(nulls, 25u);
  const std::string csv = grid_to_csv(*landscape);
  std::size_t infinite = 0;
  for (std::size_t at = csv.find(",inf\n"); at != std::string::npos; at = csv.find(",inf\n", at + 1)) ++infinite;
  EXPECT_EQ(infinite, nulls);
  EXPECT_NE(to_text(*landscape).find(", not finite at " + std::to_string(nulls) + " of 25 points"), std::string::npos)
      << to_text(*landscape);
  EXPECT_NE(trajectories_to_csv(*landscape).find("\n\"a \"\"b\"\", c\",10,0.5,640,"), std::string::npos) << trajectories_to_csv(*landscape);
}

// What the report reads; numbers are those of the landscape, to the last digit.
TEST(Landscape, JsonAndTablesHaveItsNumbers) {
  const auto landscape =
      make_landscape({trajectory_of("a", {{1, 2, 3}, {2, 2, 2}, {3, 1, 2}})}, four_numbers(), bowls(3), {.title = "t", .grid = 3});
  ASSERT_TRUE(landscape);
  const nlohmann::json json = nlohmann::json::parse(to_json(*landscape));
  EXPECT_EQ(json["title"], "t");
  EXPECT_EQ(json["loss"], "test loss");
  EXPECT_EQ(json["samples"], 4);
  EXPECT_EQ(json["explained_variance"].get<std::vector<double>>(),
            (std::vector<double>{landscape->explained_variance[0], landscape->explained_variance[1]}));
  EXPECT_EQ(json["x"].get<std::vector<double>>(), landscape->x);
  EXPECT_EQ(json["y"].get<std::vector<double>>(), landscape->y);
  EXPECT_EQ(json["grid"].get<std::vector<std::vector<double>>>(), landscape->grid);
  const nlohmann::json& point = json["trajectories"][0]["points"][1];
  EXPECT_EQ(json["trajectories"][0]["name"], "a");
  EXPECT_EQ(point["step"], 10);
  EXPECT_EQ(point["epoch"], 0.5);
  EXPECT_EQ(point["loss"], landscape->trajectories[0].points[1].loss);
  EXPECT_TRUE(point["accuracy"].is_null());
  const std::string csv = grid_to_csv(*landscape);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 10);
  double x = 0;
  double y = 0;
  double loss = 0;
  ASSERT_EQ(std::sscanf(csv.c_str(), "x,y,loss\n%lf,%lf,%lf\n", &x, &y, &loss), 3);
  EXPECT_EQ(x, landscape->x[0]);
  EXPECT_EQ(y, landscape->y[0]);
  EXPECT_EQ(loss, landscape->grid[0][0]);
  // The second line is the next x of the same y.
  ASSERT_EQ(std::sscanf(csv.c_str() + csv.find('\n', csv.find('\n') + 1) + 1, "%lf,%lf,%lf\n", &x, &y, &loss), 3);
  EXPECT_EQ(x, landscape->x[1]);
  EXPECT_EQ(y, landscape->y[0]);
  EXPECT_EQ(loss, landscape->grid[0][1]);
}

TEST(Landscape, ChosenSamplesAreOfAllClassesAlike) {
  data::Samples samples{.count = 1000, .classes = 4};
  RandomStream stream(9, 0, "test");
  for (std::size_t i = 0; i < samples.count; ++i) samples.labels.push_back(i < 3 ? 3 : static_cast<std::int32_t>(stream.below(3)));
  for (const std::size_t count : {std::size_t{1}, std::size_t{4}, std::size_t{50}, std::size_t{999}, std::size_t{2000}}) {
    const std::vector<std::uint32_t> chosen = choose_evenly(samples, count);
    EXPECT_EQ(chosen, choose_evenly(samples, count));
    EXPECT_EQ(chosen.size(), std::min<std::size_t>(count, 1000));
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
    EXPECT_EQ(std::adjacent_find(chosen.begin(), chosen.end()), chosen.end());
    std::vector<std::size_t> of_class(4);
    for (const std::uint32_t index : chosen) ++of_class[static_cast<std::size_t>(samples.labels[index])];
    if (count == 4) {
      EXPECT_EQ(of_class, (std::vector<std::size_t>{1, 1, 1, 1}));
    }
    if (count == 50) {
      EXPECT_EQ(of_class[3], 3u);  // There are no more.
      EXPECT_LE(std::max({of_class[0], of_class[1], of_class[2]}) - std::min({of_class[0], of_class[1], of_class[2]}), 1u);
    }
  }
  // Not simply the first ones, which may be of one kind in a file that is sorted.
  EXPECT_GT(choose_evenly(samples, 50).back(), 500u);
  EXPECT_EQ(choose_evenly(four_numbers(), 3).size(), 3u);
}

}  // namespace
}  // namespace starling::lab
