// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/portable_math.h"
#include "starling/base/random.h"

namespace starling::lab {
namespace {

template <typename Value>
using Names = std::span<const std::pair<Value, const char*>>;

constexpr std::array<std::pair<Masks, const char*>, 2> kMasks{{{Masks::disjoint, "disjoint"}, {Masks::uniform, "uniform"}}};
constexpr std::array<std::pair<StepsOn, const char*>, 2> kStepsOn{{{StepsOn::all, "all"}, {StepsOn::block, "block"}}};
constexpr std::array<std::pair<Norm, const char*>, 3> kNorms{{{Norm::max, "max"}, {Norm::weighted, "weighted"}, {Norm::l2, "l2"}}};

template <typename Value>
Value parse_name(std::string_view what, std::string_view text, Names<Value> names) {
  std::vector<std::string> known;
  for (const auto& [value, name] : names) {
    if (text == name) return value;
    known.emplace_back(name);
  }
  throw UserError(fmt::format("{} '{}', but one of {} is meant.{}", what, text, fmt::join(known, ", "), nearest_name_hint(text, known)));
}

template <typename Value>
const char* name_of(Value value, Names<Value> names) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "";
}

constexpr std::uint64_t kMostIterations = 1000000;
constexpr double kMostUpdates = 5e6;
constexpr double kMostBytes = 1e9;
constexpr int kMostLocalSteps = 1000;

// The values that somebody may still read, as whole vectors, which is how the check keeps them.
double history_bytes(const ConvergeOptions& options) {
  const double kept = std::min(static_cast<double>(options.delays.limit(options.iterations)), static_cast<double>(options.iterations)) + 2;
  return kept * static_cast<double>(options.blocks) * static_cast<double>(options.problem.dimension) * sizeof(double);
}

void check_sizes(const ConvergeOptions& options) {
  const std::size_t most_blocks = options.masks == Masks::disjoint ? options.problem.dimension : kLargestDimension;
  if (options.blocks < 1 || options.blocks > most_blocks) {
    throw UserError(fmt::format("there are {} blocks, but there must be 1 to {}{}", options.blocks, most_blocks,
                                options.masks == Masks::disjoint ? ": with disjoint masks every block has a component of its own" : ""));
  }
  if (options.iterations < 1 || options.iterations > kMostIterations) {
    throw UserError(fmt::format("there are {} iterations, but there must be 1 to {}", options.iterations, kMostIterations));
  }
  if (static_cast<double>(options.iterations) * static_cast<double>(options.blocks) > kMostUpdates) {
    throw UserError(fmt::format("{} iterations of {} blocks are too many: their product must not exceed {:.0f}", options.iterations,
                                options.blocks, kMostUpdates));
  }
  if (history_bytes(options) > kMostBytes) {
    throw UserError(
        fmt::format("delays {} over {} iterations keep {:.1f} GB of old values, but the limit is {:.0f} GB: take fewer "
                    "iterations, blocks or dimensions",
                    options.delays.text(), options.iterations, history_bytes(options) / 1e9, kMostBytes / 1e9));
  }
}

void check_options(const ConvergeOptions& options) {
  check_sizes(options);
  if (options.local_steps.size() != 1 && options.local_steps.size() != options.blocks) {
    throw UserError(fmt::format("there are {} numbers of local steps for {} blocks: give one for all, or one per block",
                                options.local_steps.size(), options.blocks));
  }
  for (const int steps : options.local_steps) {
    if (steps < 1 || steps > kMostLocalSteps) {
      throw UserError(fmt::format("a number of local steps is {}, but it must be 1 to {}", steps, kMostLocalSteps));
    }
  }
  if (options.steps_on == StepsOn::block && options.masks == Masks::uniform) {
    throw UserError("steps on a block's own components need disjoint masks: with uniform masks a block has no components of its own");
  }
  if (options.step_size && !(*options.step_size > 0 && *options.step_size <= 1e6)) {
    throw UserError(fmt::format("the step size is {}, but it must be above 0 and at most 1000000", *options.step_size));
  }
  if (!(options.tolerance >= 1e-12 && options.tolerance <= 0.5)) {
    throw UserError(fmt::format("the tolerance is {}, but it must be 1e-12 to 0.5", options.tolerance));
  }
}

ScheduleOptions schedule_options(const ConvergeOptions& options) {
  return {
      .blocks = options.blocks, .choice = options.choice, .delays = options.delays, .idle_block = options.idle_block, .seed = options.seed};
}

IterationSetup make_setup(const ConvergeOptions& options, const Problem& problem) {
  IterationSetup setup{.problem = &problem, .blocks = options.blocks, .masks = options.masks, .steps_on = options.steps_on};
  setup.local_steps = options.local_steps;
  setup.local_steps.resize(options.blocks, options.local_steps.front());
  const Problem::Curvature curvature = problem.curvature();
  const bool in_l2 = options.norm ? *options.norm == Norm::l2 : options.masks == Masks::uniform;
  setup.step_size = options.step_size ? *options.step_size
                    : in_l2           ? 2 / (curvature.smallest + curvature.largest)
                                      : 1 / problem.largest_diagonal();
  setup.norm = options.norm ? *options.norm : in_l2 ? Norm::l2 : Norm::max;
  if (setup.norm != Norm::l2) setup.weights = best_weights(problem, setup.step_size);
  if (!options.norm && setup.norm == Norm::max && !contraction_bound(setup).largest) {
    setup.norm = Norm::weighted;
    if (!contraction_bound(setup).largest) setup.norm = Norm::max;
  }
  RandomStream stream(options.seed, 0, "converge start");
  for (std::size_t i = 0; i < problem.dimension(); ++i) setup.start.push_back(stream.normal());
  return setup;
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// What rounding may add to an error in one update: every local step adds up so many products of numbers as large as the iterates and the
// optimum.
double rounding_of(const IterationSetup& setup) {
  const Problem& problem = *setup.problem;
  const double dimension = static_cast<double>(problem.dimension());
  const double size = largest_of(problem.optimum()) + largest_of(setup.start);
  const double slope = 1 + setup.step_size * problem.curvature().largest;
  const int steps = *std::max_element(setup.local_steps.begin(), setup.local_steps.end());
  double rounding = std::numeric_limits<double>::epsilon() * (static_cast<double>(problem.summands()) + 8) * size * slope * steps;
  rounding += setup.step_size * problem.slope_at_optimum() * steps;
  if (setup.norm == Norm::l2) rounding *= std::sqrt(dimension);
  if (setup.norm == Norm::weighted) rounding /= *std::min_element(setup.weights.begin(), setup.weights.end());
  return rounding;
}

double difference(const IterationRecord& a, const IterationRecord& b) {
  if (a.errors.size() != b.errors.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.errors.size(); ++i) largest = std::max(largest, std::abs(a.errors[i] - b.errors[i]));
  for (std::size_t i = 0; i < a.last_state.size(); ++i) largest = std::max(largest, std::abs(a.last_state[i] - b.last_state[i]));
  return largest;
}

void measure_sweeps(const ConvergeOptions& options, ConvergeResult& result) {
  const std::vector<std::uint64_t> times = macro_iterations(result.record.updates, options.blocks);
  const std::vector<double> errors =
      result.bound.largest ? errors_from(result.record.errors, times) : errors_within(result.record.errors, times);
  // A ratio is worth printing as long as rounding does not show in its first four digits.
  const double clear = 1e4 * result.rounding;
  result.sweeps.clear();
  result.converged_at.reset();
  result.worst_ratio.reset();
  for (std::size_t m = 0; m < times.size(); ++m) {
    Sweep sweep{.step = times[m], .error = errors[m]};
    if (m > 0 && errors[m - 1] > clear) {
      sweep.ratio = errors[m] / errors[m - 1];
      result.worst_ratio = std::max(result.worst_ratio.value_or(0), *sweep.ratio);
    }
    if (!result.converged_at && errors[m] <= options.tolerance * errors[0]) result.converged_at = m;
    result.sweeps.push_back(sweep);
  }
  const std::size_t last = result.converged_at.value_or(times.size() - 1);
  if (last > 0 && errors[last] > 0) {
    result.mean_ratio = portable_exp(portable_log(errors[last] / errors[0]) / static_cast<double>(last));
  }
}

// The first sweep that contracts less than the theory says, if there is one.
std::optional<std::size_t> first_excess(const ConvergeResult& result) {
  for (std::size_t m = 1; m < result.sweeps.size() && result.bound.largest; ++m) {
    const double most = *result.bound.largest * result.sweeps[m - 1].error * (1 + 1e-12) + result.rounding;
    if (!(result.sweeps[m].error <= most)) return m;
  }
  return std::nullopt;
}

std::vector<std::size_t> blocks_without_update(const ConvergeOptions& options, const IterationRecord& record) {
  std::vector<bool> updated(options.blocks, false);
  for (const UpdateRecord& update : record.updates) updated[update.block] = true;
  std::vector<std::size_t> result;
  for (std::size_t block = 0; block < options.blocks; ++block) {
    if (!updated[block]) result.push_back(block);
  }
  return result;
}

std::string against_bound(const ConvergeResult& result) {
  if (!result.worst_ratio) return result.bound.largest ? fmt::format("bound {:.4f}", *result.bound.largest) : "";
  if (result.bound.largest) return fmt::format("worst contraction {:.4f} ≤ bound {:.4f}", *result.worst_ratio, *result.bound.largest);
  return fmt::format("worst contraction {:.4f}, no bound: {}", *result.worst_ratio, result.bound.reason);
}

void judge_idle(const ConvergeOptions& options, ConvergeResult& result) {
  const std::size_t block = *options.idle_block;
  const double before = result.record.first_block_errors[block];
  const double after = result.record.last_block_errors[block];
  const bool moved = before != after || result.sweeps.size() > 1;
  result.outcome = moved ? Outcome::contradicted : Outcome::idle;
  result.verdict =
      moved
          ? fmt::format("contradicts the theory: block {} is never updated, but its error went from {:.3g} to {:.3g}", block, before, after)
          : fmt::format("does not converge: block {} is never updated: its error stays {:.3g}, as the theory says", block, after);
}

void judge_sweeps(const ConvergeOptions& options, ConvergeResult& result) {
  const std::size_t last = result.sweeps.size() - 1;
  if (result.converged_at) {
    result.outcome = Outcome::converged;
    result.verdict = fmt::format("converges to x*: error {:.1e} after {} sweeps, {}", result.sweeps[*result.converged_at].error,
                                 *result.converged_at, against_bound(result));
  } else if (result.record.overflow_step) {
    result.outcome = Outcome::unpromised;
    result.verdict = fmt::format("diverges: the error is {:.1e} after {} steps; nothing was promised: {}", result.record.errors.back(),
                                 *result.record.overflow_step, result.bound.reason);
  } else if (last == 0) {
    const std::vector<std::size_t> missing = blocks_without_update(options, result.record);
    result.outcome = Outcome::undecided;
    result.verdict = fmt::format("undecided: not one sweep was completed in {} steps{}: give more iterations", options.iterations,
                                 missing.empty() ? "" : fmt::format(", as block {} was not updated yet", missing.front()));
  } else if (result.bound.largest) {
    result.outcome = Outcome::contracting;
    result.verdict = fmt::format("converges as far as it was run: error {:.1e} after {} sweeps ({} steps), {}", result.sweeps[last].error,
                                 last, options.iterations, against_bound(result));
  } else {
    result.outcome = Outcome::unpromised;
    result.verdict =
        fmt::format("has not converged: error {:.1e} after {} sweeps, {}", result.sweeps[last].error, last, against_bound(result));
  }
}

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::converged:
      return "converged";
    case Outcome::contracting:
      return "contracting";
    case Outcome::idle:
      return "idle";
    case Outcome::undecided:
      return "undecided";
    case Outcome::unpromised:
      return "unpromised";
    case Outcome::contradicted:
      break;
  }
  return "contradicted";
}

void judge(const ConvergeOptions& options, ConvergeResult& result) {
  measure_sweeps(options, result);
  if (options.idle_block) {
    judge_idle(options, result);
    return;
  }
  if (const std::optional<std::size_t> excess = first_excess(result)) {
    result.outcome = Outcome::contradicted;
    result.verdict = fmt::format("contradicts the theory: sweep {} contracts by {:.6f} > bound {:.6f}", *excess,
                                 result.sweeps[*excess].error / result.sweeps[*excess - 1].error, *result.bound.largest);
    return;
  }
  judge_sweeps(options, result);
}

ConvergeResult run_converge(const ConvergeOptions& options) {
  check_options(options);
  DrawnSchedule schedule(schedule_options(options));
  ProblemOptions problem_options = options.problem;
  problem_options.seed = options.seed;
  const std::unique_ptr<Problem> problem = make_problem(problem_options);
  const IterationSetup setup = make_setup(options, *problem);
  ConvergeResult result{.norm = setup.norm, .step_size = setup.step_size, .slope_at_optimum = problem->slope_at_optimum()};
  result.bound = contraction_bound(setup);
  result.rounding = rounding_of(setup);
  result.record = run_iteration(setup, schedule, options.iterations);
  DrawnSchedule again(schedule_options(options));
  const IterationRecord masked =
      run_masked_iteration(setup, make_masks(options.masks, problem->dimension(), options.blocks), again, options.iterations);
  result.view_difference = difference(result.record, masked);
  judge(options, result);
  // An update passes on at most max alpha of what the two differ by, and adds its own rounding.
  if (result.bound.largest && !(result.view_difference <= 4 * result.rounding / (1 - *result.bound.largest))) {
    result.outcome = Outcome::contradicted;
    result.verdict =
        fmt::format("contradicts itself: with whole vectors and explicit masks the iterates differ by {:.1e}", result.view_difference);
  }
  return result;
}

Masks parse_masks(std::string_view name) { return parse_name<Masks>("the masks are", name, kMasks); }
StepsOn parse_steps_on(std::string_view name) { return parse_name<StepsOn>("the local steps are on", name, kStepsOn); }
Norm parse_norm(std::string_view name) { return parse_name<Norm>("the norm is", name, kNorms); }
const char* to_string(Masks masks) { return name_of<Masks>(masks, kMasks); }
const char* to_string(StepsOn steps_on) { return name_of<StepsOn>(steps_on, kStepsOn); }
const char* to_string(Norm norm) { return name_of<Norm>(norm, kNorms); }

}  // namespace starling::lab
