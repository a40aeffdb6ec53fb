// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_counter_example.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "starling/base/portable_math.h"
#include "starling/lab/converge_bound.h"

namespace starling::lab {
namespace {

constexpr std::uint64_t kSweeps = 40;

// Two values of either block live on side by side, and each is only ever computed from certain others, always those of the cycle before:
//
//   step 4c+1: a ← block 0 from (a, b)     4c+2: b ← block 1 from (a, d)
//   step 4c+3: c ← block 0 from (c, d)     4c+4: d ← block 1 from (c, b)
//
// The signs of M are such that, started with a = b = 1 and c = d = -1, no two terms ever cancel. In the first cycle every update reads the
// newest values, which makes the two pairs different.
class PairedSchedule : public Schedule {
 public:
  std::vector<BlockUpdate> updates(std::uint64_t step) override {
    const std::uint64_t position = (step - 1) % 4;
    BlockUpdate update{.block = position % 2, .labels = {step - 1, step - 1}};
    if (step > 4) {
      // Times of a, b, c and d in the cycle before.
      const std::uint64_t cycle = step - 1 - position - 4;
      const std::uint64_t a = cycle + 1;
      const std::uint64_t b = cycle + 2;
      const std::uint64_t c = cycle + 3;
      const std::uint64_t d = cycle + 4;
      update.labels = {position < 2 ? a : c, position == 0 || position == 3 ? b : d};
    }
    for (const std::uint64_t label : update.labels) largest_delay_ = std::max(largest_delay_, step - 1 - label);
    return {update};
  }
  std::uint64_t oldest_label(std::uint64_t step) const override { return step > 8 ? step - 8 : 0; }
  std::uint64_t largest_delay() const { return largest_delay_; }

 private:
  std::uint64_t largest_delay_ = 0;
};

double l2_norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double max_norm(const std::vector<double>& x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

void add_norms(CounterExample& example) {
  const std::vector<std::vector<double>> masks{{1, 0}, {0, 1}};
  const std::vector<std::vector<double>> values{{1, 0}, {0, 1}};
  check_masks(masks, 2);
  example.combined = {0, 0};
  for (std::size_t k = 0; k < values.size(); ++k) {
    for (std::size_t i = 0; i < 2; ++i) example.combined[i] += masks[k][i] * values[k][i];
    example.largest_l2 = std::max(example.largest_l2, l2_norm(values[k]));
    example.largest_max = std::max(example.largest_max, max_norm(values[k]));
  }
  example.combined_l2 = l2_norm(example.combined);
  example.combined_max = max_norm(example.combined);
}

std::vector<double> sweep_errors(const IterationSetup& setup, CounterExample& example) {
  PairedSchedule schedule;
  const IterationRecord record = run_iteration(setup, schedule, 8 * kSweeps);
  example.largest_delay = schedule.largest_delay();
  std::vector<double> errors = errors_within(record.errors, macro_iterations(record.updates, setup.blocks));
  errors.resize(std::min<std::size_t>(errors.size(), kSweeps + 1));
  return errors;
}

}  // namespace

double growth_per_sweep(const std::vector<double>& errors) {
  const std::size_t half = errors.size() / 2;
  return portable_exp(portable_log(errors.back() / errors[half]) / static_cast<double>(errors.size() - 1 - half));
}

CounterExample make_counter_example() {
  CounterExample example;
  add_norms(example);
  // M = I - A is 0.9 times a reflection: symmetric, so that it is a gradient step, and with signs that cancel in M but not in |M|.
  const double entry = 0.9 / std::sqrt(2.0);
  SquareMatrix matrix(2);
  matrix.values = {1 - entry, -entry, -entry, 1 + entry};
  const QuadraticProblem problem(matrix, {0, 0});
  const Problem::Curvature curvature = problem.curvature();
  example.l2_factor = std::max(std::abs(1 - curvature.smallest), std::abs(1 - curvature.largest));
  IterationSetup setup{.problem = &problem, .blocks = 1, .masks = Masks::uniform, .local_steps = {1}, .step_size = 1, .norm = Norm::l2};
  setup.start = {1, 0.5};
  DrawnSchedule alone({.blocks = 1, .choice = Choice::all});
  example.alone = run_iteration(setup, alone, kSweeps).errors;

  setup.blocks = 2;
  setup.local_steps = {1, 1};
  example.uniform = sweep_errors(setup, example);
  setup.masks = Masks::disjoint;
  setup.norm = Norm::weighted;
  setup.weights = best_weights(problem, 1);
  example.max_factor = max_norm(contraction_bound(setup).factors);
  setup.norm = Norm::max;
  example.disjoint = sweep_errors(setup, example);
  return example;
}

LinePlot counter_example_plot(const CounterExample& example) {
  LinePlot plot{.title = "a gradient step that contracts by 0.9 in l2, and asynchronous iterations with it",
                .x_label = "sweep (macro-iteration)",
                .y_label = "error",
                .log_y = true};
  const auto add = [&plot](std::string name, const std::vector<double>& errors, bool dashed) {
    PlotSeries series{.name = std::move(name), .dashed = dashed};
    for (std::size_t i = 0; i < errors.size(); ++i) series.points.emplace_back(static_cast<double>(i), errors[i]);
    plot.series.push_back(std::move(series));
  };
  add(fmt::format("one worker: {:.3f} per step", growth_per_sweep(example.alone)), example.alone, true);
  add(fmt::format("two blocks, masks I/2, delays up to {}: {:.3f} per sweep", example.largest_delay, growth_per_sweep(example.uniform)),
      example.uniform, false);
  add(fmt::format("two blocks, disjoint masks, the same delays: {:.3f} per sweep", growth_per_sweep(example.disjoint)), example.disjoint,
      false);
  return plot;
}

}  // namespace starling::lab
