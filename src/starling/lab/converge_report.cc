// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace starling::lab {
namespace {

const char* formula(Norm norm, Masks masks) {
  const bool disjoint = masks == Masks::disjoint;
  switch (norm) {
    case Norm::max:
      return disjoint ? "max |x_i - x*_i|" : "max over blocks l of max |x_l,i - x*_i|";
    case Norm::weighted:
      return disjoint ? "max |x_i - x*_i| / w_i" : "max over blocks l of max |x_l,i - x*_i| / w_i";
    case Norm::l2:
      break;
  }
  return disjoint ? "max over blocks l of |x_l - x*|_2 on its components" : "max over blocks l of |x_l - x*|_2";
}

// The numbers on one line, the first few of many.
template <typename Number>
std::string some(const std::vector<Number>& values, const char* form) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : " ", fmt::format(fmt::runtime(form), values[i]));
  }
  return values.size() > kShown ? fmt::format("{} … ({} in all)", text, values.size()) : text;
}

std::string problem_text(const ProblemOptions& problem) {
  if (problem.name == "quadratic") {
    return fmt::format("quadratic of dimension {}, condition {}, coupling {}", problem.dimension, problem.condition, problem.coupling);
  }
  if (problem.name == "laplace") return fmt::format("laplace of dimension {}", problem.dimension);
  return fmt::format("logistic of dimension {}, {} samples, coupling {}, regularisation {}", problem.dimension, problem.samples,
                     problem.coupling, problem.regularisation);
}

// About `count` of the indices 0 … last, evenly spaced, the first and the last among them.
std::vector<std::size_t> thinned(std::size_t last, std::size_t count) {
  std::vector<std::size_t> indices;
  const std::size_t stride = last / std::max<std::size_t>(count, 1) + 1;
  for (std::size_t i = 0; i < last; i += stride) indices.push_back(i);
  indices.push_back(last);
  return indices;
}

// 0, 1, 2, 4, 8, … and the last: what happens to a block that stands still happens in the first steps.
std::vector<std::size_t> doubling(std::size_t last) {
  std::vector<std::size_t> indices{0};
  for (std::size_t i = 1; i < last; i *= 2) indices.push_back(i);
  if (last > 0) indices.push_back(last);
  return indices;
}

// Errors beyond the tolerance are rounding: of no interest, except as far as they were asked for.
std::size_t last_sweep_shown(const ConvergeResult& result) { return result.converged_at.value_or(result.sweeps.size() - 1); }

// Step and errors of the blocks.
std::string block_table(const ConvergeOptions& options, const ConvergeResult& result) {
  constexpr std::size_t kColumns = 8;
  const std::size_t columns = std::min(options.blocks, kColumns);
  // The idle block is what the table is about: it is shown even where not all are.
  std::vector<std::size_t> blocks;
  for (std::size_t block = 0; block < columns; ++block) blocks.push_back(block);
  if (options.idle_block && *options.idle_block >= columns) blocks.back() = *options.idle_block;
  std::string text = fmt::format("{:>8}", "step");
  for (const std::size_t block : blocks)
    text += fmt::format(" {:>10}", fmt::format("{} {}", block == options.idle_block ? "idle" : "block", block));
  text += "\n";
  for (const std::size_t i : doubling(result.record.traces[0].size() - 1)) {
    text += fmt::format("{:>8}", i * result.record.trace_stride);
    for (const std::size_t block : blocks) text += fmt::format(" {:>10.3e}", result.record.traces[block][i]);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string describe(const ConvergeOptions& options, const ConvergeResult& result) {
  std::string text = fmt::format("{}, seed {}; x* is known, gradient there {:.1e}\n", problem_text(options.problem), options.seed,
                                 result.slope_at_optimum);
  text +=
      fmt::format("{} blocks, masks {}, schedule {}, delays {}{}\n", options.blocks, to_string(options.masks), to_string(options.choice),
                  options.delays.text(), options.idle_block ? fmt::format(", block {} idle", *options.idle_block) : "");
  text += fmt::format("T: gradient step of size {:.4g}; local steps {} on {}\n", result.step_size, some(options.local_steps, "{}"),
                      options.steps_on == StepsOn::all ? "all components" : "the block's own components");
  text += fmt::format("error: {}\n", formula(result.norm, options.masks));
  if (!result.bound.factors.empty()) text += fmt::format("alpha of the blocks: {}\n", some(result.bound.factors, "{:.4f}"));
  if (!result.bound.largest) text += fmt::format("no bound: {}\n", result.bound.reason);
  return text;
}

std::string sweep_table(const ConvergeOptions& options, const ConvergeResult& result, std::size_t rows) {
  if (result.sweeps.size() < 2) return block_table(options, result);
  std::string text = fmt::format("{:>6} {:>9} {:>11} {:>9} {:>9}\n", "sweep", "step", "error", "ratio", "bound");
  for (const std::size_t m : thinned(last_sweep_shown(result), rows)) {
    const Sweep& sweep = result.sweeps[m];
    const std::string ratio = sweep.ratio ? fmt::format(fmt::runtime(*sweep.ratio < 0.001 ? "{:.2e}" : "{:.4f}"), *sweep.ratio) : "";
    const std::string bound = m > 0 && result.bound.largest ? fmt::format("{:.4f}", *result.bound.largest) : "";
    text += fmt::format("{:>6} {:>9} {:>11.4e} {:>9} {:>9}\n", m, sweep.step, sweep.error, ratio, bound);
  }
  return text;
}

std::string to_csv(const ConvergeResult& result) {
  std::string text = "step,sweep,error,allowed\n";
  std::size_t sweep = 0;
  double allowed = result.sweeps[0].error;
  for (std::size_t step = 0; step < result.record.errors.size(); ++step) {
    while (sweep + 1 < result.sweeps.size() && result.sweeps[sweep + 1].step <= step) {
      ++sweep;
      allowed *= result.bound.largest.value_or(1);
    }
    fmt::format_to(std::back_inserter(text), "{},{},{:.17g},", step, sweep, result.record.errors[step]);
    if (result.bound.largest) fmt::format_to(std::back_inserter(text), "{:.17g}", allowed);
    text += "\n";
  }
  return text;
}

LinePlot convergence_plot(const ConvergeOptions& options, const ConvergeResult& result) {
  LinePlot plot{.title = fmt::format("{}: {} blocks, masks {}, schedule {}, delays {}", options.problem.name, options.blocks,
                                     to_string(options.masks), to_string(options.choice), options.delays.text()),
                .x_label = "sweep (macro-iteration)",
                .y_label = fmt::format("error: {}", formula(result.norm, options.masks)),
                .log_y = true};
  if (result.sweeps.size() < 2) {
    plot.x_label = "step";
    for (std::size_t block = 0; block < std::min<std::size_t>(options.blocks, 6); ++block) {
      // Of many blocks the last line is the idle one's, wherever it is.
      const std::size_t shown = block == 5 && options.idle_block.value_or(0) > 5 ? *options.idle_block : block;
      PlotSeries series{.name = fmt::format("block {}{}", shown, shown == options.idle_block ? ", never updated" : "")};
      series.dashed = shown == options.idle_block;
      for (std::size_t i = 0; i < result.record.traces[shown].size(); ++i) {
        series.points.emplace_back(static_cast<double>(i * result.record.trace_stride), result.record.traces[shown][i]);
      }
      plot.series.push_back(std::move(series));
    }
    return plot;
  }
  PlotSeries measured{.name = fmt::format("measured, worst contraction per sweep {:.4f}", result.worst_ratio.value_or(0)), .markers = true};
  PlotSeries allowed{.name = fmt::format("bound, max alpha = {:.4f} per sweep", result.bound.largest.value_or(0)), .dashed = true};
  double most = result.sweeps[0].error;
  for (std::size_t m = 0; m <= last_sweep_shown(result); ++m) {
    measured.points.emplace_back(static_cast<double>(m), result.sweeps[m].error);
    allowed.points.emplace_back(static_cast<double>(m), most);
    most *= result.bound.largest.value_or(1);
  }
  plot.series.push_back(std::move(measured));
  if (result.bound.largest) plot.series.push_back(std::move(allowed));
  return plot;
}

}  // namespace starling::lab
