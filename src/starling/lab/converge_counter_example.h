// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Why disjoint masks need a max-norm. Two facts, both computed here rather than claimed:
//   - E_1 = diag(1, 0), E_2 = diag(0, 1), x_1 = (1, 0), x_2 = (0, 1): in l2 the sum Σ E_k x_k is longer than every x_k, by √2.
//   - It matters: on a quadratic in two variables whose gradient step contracts by 0.9 in l2, two blocks with disjoint masks and delays of
//     at most 5 steps diverge, while the same schedule with masks I/2 contracts by 0.9 per sweep, as the theory says.
#pragma once

#include <string>
#include <vector>

#include "starling/lab/converge_iteration.h"
#include "starling/lab/line_plot.h"

namespace starling::lab {

struct CounterExample {
  std::vector<double> combined{};  // Σ E_k x_k.
  double combined_l2 = 0;
  double combined_max = 0;
  double largest_l2 = 0;  // max over k of |x_k|, in l2 and in the max-norm.
  double largest_max = 0;

  double l2_factor = 0;            // Of the gradient step: the largest |eigenvalue| of M = I - A.
  double max_factor = 0;           // The spectral radius of |M|: below 1 the step contracts in some weighted max-norm, otherwise in none.
  std::vector<double> alone{};     // |x - x*| in l2 after every step of one worker.
  std::vector<double> disjoint{};  // The largest error within every sweep, disjoint masks, max-norm.
  std::vector<double> uniform{};   // The same, masks I/2, l2.
  std::uint64_t largest_delay = 0;
};

CounterExample make_counter_example();
LinePlot counter_example_plot(const CounterExample& example);

// The factor per sweep over the second half, where the start no longer shows.
double growth_per_sweep(const std::vector<double>& errors);

}  // namespace starling::lab
