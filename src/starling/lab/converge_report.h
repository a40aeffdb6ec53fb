// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the convergence laboratory shows: tables, CSV and plots, as strings.
#pragma once

#include <string>

#include "starling/lab/converge.h"
#include "starling/lab/line_plot.h"

namespace starling::lab {

// What is run: problem, blocks, schedule, delays, norm, factors. Several lines.
std::string describe(const ConvergeOptions& options, const ConvergeResult& result);

// Sweep, step, error, ratio and bound in aligned columns; of long runs about `rows` sweeps, evenly spaced. Where no sweep was completed,
// step and error of every block instead.
std::string sweep_table(const ConvergeOptions& options, const ConvergeResult& result, std::size_t rows = 16);

// One line per step: step, sweeps completed by then, error, and what the theory allows for it (empty without a bound).
std::string to_csv(const ConvergeResult& result);

// Measured error and bound over sweeps; where no sweep was completed, the errors of blocks over steps.
LinePlot convergence_plot(const ConvergeOptions& options, const ConvergeResult& result);

}  // namespace starling::lab
