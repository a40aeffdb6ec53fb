// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the theory promises: factors alpha_l such that an update of block l makes an error of at most e everywhere one of at most alpha_l e,
// in a norm in which Σ E_j x_j is no larger than the largest x_j.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/lab/converge_iteration.h"

namespace starling::lab {

struct ContractionBound {
  std::vector<double> factors{};    // alpha_l per block; empty where nothing can be said.
  std::optional<double> largest{};  // max alpha_l, only if it is below 1: otherwise nothing is promised.
  std::string reason{};             // Why there is none.
};

// For the norm, masks, local steps and step size of the setup. In the max-norms alpha_l comes from the problem's step_bounds, applied
// beta_l times to the components that move; in l2, for uniform masks alone, it is max |1 - gamma lambda| to the power beta_l.
ContractionBound contraction_bound(const IterationSetup& setup);

// Weights in which a gradient step contracts as well as in any: the Perron vector of the step's bounds, by power iteration, no component
// below a millionth of the largest.
std::vector<double> best_weights(const Problem& problem, double step_size);

}  // namespace starling::lab
