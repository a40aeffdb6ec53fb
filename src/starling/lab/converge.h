// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The convergence laboratory: runs an asynchronous iteration on a problem whose optimum is known, measures how much every sweep contracts
// the error, and holds it against the bound of the theory. docs/converge.md explains it; converge_iteration.h defines what a sweep is.
//
//   ConvergeResult result = run_converge({.delays = Delays::parse("growing"), .local_steps = {4}});
//   std::string sentence = result.verdict;
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "starling/lab/converge_bound.h"
#include "starling/lab/converge_iteration.h"
#include "starling/lab/line_plot.h"

namespace starling::lab {

struct ConvergeOptions {
  ProblemOptions problem{};  // Its seed is replaced by the one below.
  std::size_t blocks = 4;
  Masks masks = Masks::disjoint;
  Choice choice = Choice::random;
  Delays delays{};
  std::optional<std::size_t> idle_block{};
  std::vector<int> local_steps{1};  // One number for all, or one per block.
  StepsOn steps_on = StepsOn::all;
  std::optional<Norm> norm{};         // Without: l2 for uniform masks; for disjoint ones max, or weighted if only that gives a bound.
  std::optional<double> step_size{};  // Without: 1 / the largest diagonal element of the Hessian, or the best for l2.
  std::uint64_t iterations = 2000;
  double tolerance = 1e-10;  // Converged means: this much of the largest error is left.
  std::uint64_t seed = 1;
};

enum class Outcome {
  converged,
  contracting,  // Every sweep obeys the bound, but there were too few to reach the tolerance.
  idle,         // A block is never updated, and so it must not converge.
  undecided,    // Not one sweep was completed.
  unpromised,   // Did not converge, and nothing said that it would.
  contradicted  // The theory and the run disagree.
};
const char* to_string(Outcome outcome);

struct Sweep {
  std::uint64_t step = 0;         // k_m.
  double error = 0;               // E_m; without a bound the largest error within the sweep, which can grow.
  std::optional<double> ratio{};  // E_m / E_(m-1), where rounding does not blur it.
};

struct ConvergeResult {
  Norm norm = Norm::max;
  double step_size = 0;
  double slope_at_optimum = 0;
  ContractionBound bound{};
  IterationRecord record{};
  std::vector<Sweep> sweeps{};
  double rounding = 0;                        // What rounding may add to an error in one update.
  std::optional<std::size_t> converged_at{};  // The first sweep at the tolerance.
  std::optional<double> worst_ratio{};
  double mean_ratio = 0;       // Geometric, up to converged_at; 0 without a sweep.
  double view_difference = 0;  // Between run_iteration() and run_masked_iteration(): the largest of all errors and the last state.
  Outcome outcome = Outcome::undecided;
  std::string verdict{};  // One sentence.
};

// Throws UserError for options out of range, with the value, what is valid and a hint.
ConvergeResult run_converge(const ConvergeOptions& options);

// What the theory says of a finished run: fills sweeps, ratios, outcome and verdict from the record and the bound.
void judge(const ConvergeOptions& options, ConvergeResult& result);

Masks parse_masks(std::string_view name);
StepsOn parse_steps_on(std::string_view name);
Norm parse_norm(std::string_view name);
const char* to_string(Masks masks);
const char* to_string(StepsOn steps_on);
const char* to_string(Norm norm);

}  // namespace starling::lab
