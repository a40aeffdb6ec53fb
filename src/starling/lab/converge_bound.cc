// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace starling::lab {
namespace {

double max_norm_factor(const IterationSetup& setup, const std::vector<double>& weights, std::size_t block) {
  const std::size_t dimension = weights.size();
  const BlockRange own = setup.masks == Masks::disjoint ? block_range(dimension, setup.blocks, block) : BlockRange{0, dimension};
  const BlockRange moved = setup.steps_on == StepsOn::block ? own : BlockRange{0, dimension};
  std::vector<double> errors = weights;
  std::vector<double> next(moved.end - moved.begin);
  for (int step = 0; step < setup.local_steps[block]; ++step) {
    setup.problem->step_bounds(setup.step_size, errors, moved.begin, moved.end, next);
    std::copy(next.begin(), next.end(), errors.begin() + static_cast<std::ptrdiff_t>(moved.begin));
  }
  double factor = 0;
  for (std::size_t i = own.begin; i < own.end; ++i) factor = std::max(factor, errors[i] / weights[i]);
  return factor;
}

double l2_factor(const IterationSetup& setup, std::size_t block) {
  const Problem::Curvature curvature = setup.problem->curvature();
  const double one = std::max(std::abs(1 - setup.step_size * curvature.smallest), std::abs(1 - setup.step_size * curvature.largest));
  double factor = 1;
  for (int step = 0; step < setup.local_steps[block]; ++step) factor *= one;
  return factor;
}

}  // namespace

ContractionBound contraction_bound(const IterationSetup& setup) {
  ContractionBound bound;
  if (setup.norm == Norm::l2 && setup.masks == Masks::disjoint) {
    bound.reason = "disjoint masks can enlarge l2 norms (see --counter-example)";
    return bound;
  }
  const std::vector<double> ones(setup.problem->dimension(), 1.0);
  for (std::size_t block = 0; block < setup.blocks; ++block) {
    bound.factors.push_back(setup.norm == Norm::l2 ? l2_factor(setup, block)
                                                   : max_norm_factor(setup, setup.norm == Norm::weighted ? setup.weights : ones, block));
  }
  const double largest = *std::max_element(bound.factors.begin(), bound.factors.end());
  if (largest < 1) {
    bound.largest = largest;
  } else {
    bound.reason = fmt::format("max alpha is {:.4f}, and only below 1 is an update certain to contract", largest);
  }
  return bound;
}

std::vector<double> best_weights(const Problem& problem, double step_size) {
  const std::size_t dimension = problem.dimension();
  std::vector<double> weights(dimension, 1.0);
  std::vector<double> next(dimension);
  constexpr int kIterations = 5000;
  constexpr double kFloor = 1e-6;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    problem.step_bounds(step_size, weights, 0, dimension, next);
    // The mean of old and new converges also where the bounds alone would alternate.
    for (std::size_t i = 0; i < dimension; ++i) next[i] = (next[i] + weights[i]) / 2;
    const double largest = *std::max_element(next.begin(), next.end());
    double change = 0;
    for (std::size_t i = 0; i < dimension; ++i) {
      const double value = std::max(next[i] / largest, kFloor);
      change = std::max(change, std::abs(value - weights[i]));
      weights[i] = value;
    }
    if (change < 1e-14) break;
  }
  return weights;
}

}  // namespace starling::lab
