// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/cli/commands.h"
#include "starling/lab/converge.h"
#include "starling/lab/converge_counter_example.h"
#include "starling/lab/converge_report.h"

namespace starling::cli {
namespace {

using nlohmann::ordered_json;

struct Flags {
  lab::ConvergeOptions options;
  std::string masks = "disjoint";
  std::string schedule = "random";
  std::string delays = "none";
  std::string steps_on = "all";
  std::string norm;
  std::uint64_t seeds = 1;
  std::string svg;
  std::string csv;
  bool json = false;
  bool counter_example = false;
};

template <typename Value>
ordered_json value_or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json to_json(const lab::ConvergeOptions& options, const lab::ConvergeResult& result) {
  ordered_json sweeps = ordered_json::array();
  for (const lab::Sweep& sweep : result.sweeps) {
    sweeps.push_back({{"step", sweep.step}, {"error", sweep.error}, {"ratio", value_or_null(sweep.ratio)}});
  }
  return {{"seed", options.seed},
          {"norm", lab::to_string(result.norm)},
          {"step_size", result.step_size},
          {"gradient_at_optimum", result.slope_at_optimum},
          {"alphas", result.bound.factors},
          {"bound", value_or_null(result.bound.largest)},
          {"worst_ratio", value_or_null(result.worst_ratio)},
          {"mean_ratio", result.mean_ratio},
          {"converged_at_sweep", value_or_null(result.converged_at)},
          {"outcome", lab::to_string(result.outcome)},
          {"verdict", result.verdict},
          {"masked_difference", result.view_difference},
          {"last_block_errors", result.record.last_block_errors},
          {"sweeps", sweeps}};
}

ordered_json options_json(const lab::ConvergeOptions& options) {
  return {{"problem", options.problem.name},
          {"dimension", options.problem.dimension},
          {"blocks", options.blocks},
          {"masks", lab::to_string(options.masks)},
          {"schedule", lab::to_string(options.choice)},
          {"delays", options.delays.text()},
          {"idle_block", value_or_null(options.idle_block)},
          {"local_steps", options.local_steps},
          {"steps_on", lab::to_string(options.steps_on)},
          {"iterations", options.iterations},
          {"tolerance", options.tolerance}};
}

void write_plot(const std::string& path, const lab::LinePlot& plot) {
  if (path.empty()) return;
  write_file_atomically(path, lab::to_svg(plot), "plot");
  fmt::print("plot written to {}\n", path);
}

lab::ConvergeResult show_one(const Flags& flags, const lab::ConvergeOptions& options) {
  lab::ConvergeResult result = lab::run_converge(options);
  fmt::print("{}\n{}\n{}\n", lab::describe(options, result), lab::sweep_table(options, result), result.verdict);
  fmt::print("check: with whole vectors, y_l = T^(beta_l)(sum of E_k x_k), the iterates differ by {:.1e}\n", result.view_difference);
  write_plot(flags.svg, lab::convergence_plot(options, result));
  if (!flags.csv.empty()) {
    write_file_atomically(flags.csv, lab::to_csv(result), "table of errors");
    fmt::print("errors after every step written to {}\n", flags.csv);
  }
  return result;
}

// One line per seed.
lab::ConvergeResult show_in_line(const lab::ConvergeOptions& options, bool first, std::uint64_t seeds) {
  lab::ConvergeResult result = lab::run_converge(options);
  if (first) {
    fmt::print("the first of {} runs:\n{}\n{:>6} {:>7} {:>11} {:>9} {:>9} {:>9}  {}\n", seeds, lab::describe(options, result), "seed",
               "sweeps", "error", "worst", "mean", "bound", "outcome");
  }
  const std::size_t last = result.converged_at.value_or(result.sweeps.size() - 1);
  const auto four_digits = [](const std::optional<double>& value) { return value ? fmt::format("{:.4f}", *value) : "-"; };
  fmt::print("{:>6} {:>7} {:>11.4e} {:>9} {:>9.4f} {:>9}  {}\n", options.seed, last, result.sweeps[last].error,
             four_digits(result.worst_ratio), result.mean_ratio, four_digits(result.bound.largest), lab::to_string(result.outcome));
  return result;
}

void show_counter_example(const Flags& flags) {
  const lab::CounterExample example = lab::make_counter_example();
  fmt::print(
      "Disjoint masks do not contract in l2:\n"
      "  E_1 = diag(1, 0), E_2 = diag(0, 1), x_1 = (1, 0), x_2 = (0, 1), sum of E_k x_k = ({:g}, {:g})\n"
      "  l2 norm   every |x_k| = {:.6f}, |sum of E_k x_k| = {:.6f}: longer than each\n"
      "  max-norm  every |x_k| = {:.6f}, |sum of E_k x_k| = {:.6f}: never longer\n\n",
      example.combined[0], example.combined[1], example.largest_l2, example.combined_l2, example.largest_max, example.combined_max);
  fmt::print(
      "What follows from it, on a quadratic in two variables with the gradient step T(x) = Mx, M = 0.9/sqrt(2) ((1, 1), (1, -1)):\n"
      "  M contracts by {:.4f} in l2, but the spectral radius of |M| is {:.4f}: it contracts in no max-norm, however weighted\n"
      "  one worker                                        {:.4f} per step:  error {:.1e} after {} steps\n"
      "  two blocks, masks I/2,          delays up to {}    {:.4f} per sweep: error {:.1e} after {} sweeps\n"
      "  two blocks, disjoint masks, the same delays       {:.4f} per sweep: error {:.1e} after {} sweeps: diverges\n",
      example.l2_factor, example.max_factor, lab::growth_per_sweep(example.alone), example.alone.back(), example.alone.size() - 1,
      example.largest_delay, lab::growth_per_sweep(example.uniform), example.uniform.back(), example.uniform.size() - 1,
      lab::growth_per_sweep(example.disjoint), example.disjoint.back(), example.disjoint.size() - 1);
  write_plot(flags.svg, lab::counter_example_plot(example));
  if (!flags.json) return;
  const ordered_json summary{{"combined", example.combined},     {"combined_l2", example.combined_l2},
                             {"largest_l2", example.largest_l2}, {"combined_max", example.combined_max},
                             {"l2_factor", example.l2_factor},   {"max_factor", example.max_factor},
                             {"alone", example.alone},           {"uniform", example.uniform},
                             {"disjoint", example.disjoint}};
  fmt::print("{}\n", summary.dump());
}

void run_converge(Flags& flags) {
  if (flags.counter_example) {
    if (!flags.csv.empty()) throw UserError("--csv does not go with --counter-example: it has no steps to list; --json prints its numbers");
    show_counter_example(flags);
    return;
  }
  lab::ConvergeOptions& options = flags.options;
  options.masks = lab::parse_masks(flags.masks);
  options.choice = lab::parse_choice(flags.schedule);
  options.delays = lab::Delays::parse(flags.delays);
  options.steps_on = lab::parse_steps_on(flags.steps_on);
  if (!flags.norm.empty()) options.norm = lab::parse_norm(flags.norm);
  if (flags.seeds > 1 && (!flags.svg.empty() || !flags.csv.empty())) {
    throw UserError(
        fmt::format("--svg and --csv show one run, but --seeds is {}: leave it out, or choose the run with --seed", flags.seeds));
  }
  ordered_json summary = options_json(options);
  summary["runs"] = ordered_json::array();
  bool agrees = true;
  const std::uint64_t first = options.seed;
  for (std::uint64_t i = 0; i < flags.seeds; ++i) {
    options.seed = first + i;
    const lab::ConvergeResult result = flags.seeds == 1 ? show_one(flags, options) : show_in_line(options, i == 0, flags.seeds);
    agrees = agrees && result.outcome != lab::Outcome::contradicted;
    if (flags.json) summary["runs"].push_back(to_json(options, result));
  }
  if (flags.seeds > 1)
    fmt::print("\n{}\n", agrees ? "all runs agree with the theory" : "a run contradicts the theory: repeat it with its --seed");
  if (flags.json) fmt::print("{}\n", summary.dump());
  if (!agrees) throw ExitCode{1};
}

void add_problem_flags(CLI::App& command, Flags& flags) {
  lab::ProblemOptions& problem = flags.options.problem;
  command.add_option("--problem", problem.name, "quadratic, laplace or logistic")->capture_default_str();
  command.add_option("--dimension", problem.dimension, "Number of components, 1 to 256")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000}));
  command.add_option("--condition", problem.condition, "quadratic: largest over smallest diagonal element")->capture_default_str();
  command.add_option("--coupling", problem.coupling, "quadratic, logistic: weight of other components in a row, 0 to below 1")
      ->capture_default_str();
  command.add_option("--regularisation", problem.regularisation, "logistic: lambda in lambda/2 |w|^2")->capture_default_str();
  command.add_option("--samples", problem.samples, "logistic: number of samples")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000}));
}

void add_iteration_flags(CLI::App& command, Flags& flags) {
  lab::ConvergeOptions& options = flags.options;
  command.add_option("--blocks", options.blocks, "Number of blocks (workers)")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000}));
  command.add_option("--masks", flags.masks, "disjoint (each block has its own components) or uniform (E_k = I/M)")->capture_default_str();
  command
      .add_option("--schedule", flags.schedule, "Blocks updated at a step: all, cyclic, one (drawn) or random (each with probability 1/2)")
      ->capture_default_str();
  command.add_option("--idle-block", options.idle_block, "A block that is never updated, 0 to blocks - 1 [none]")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000}));
  command.add_option("--delays", flags.delays, "none, bounded:D (steps), or growing[:FRACTION] (up to that part of k) [growing:0.5]")
      ->capture_default_str();
  command.add_option("--local-steps", options.local_steps, "Gradient steps per update: one number, or one per block with commas [1]")
      ->delimiter(',');
  command.add_option("--steps-on", flags.steps_on, "Local steps move all components, or the block's own: all or block")
      ->capture_default_str();
  command.add_option("--norm", flags.norm, "max, weighted or l2 [the one in which the theory holds]");
  command.add_option("--step-size", options.step_size, "Of the gradient step [chosen for the problem and norm]");
  command.add_option("--iterations", options.iterations, "Number of steps k")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000}));
  command.add_option("--tolerance", options.tolerance, "Converged: this part of the first error is left")->capture_default_str();
}

}  // namespace

void add_converge_command(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("converge", "Asynchronous iterations on problems with a known optimum, against the bound of the theory");
  add_problem_flags(*command, *flags);
  add_iteration_flags(*command, *flags);
  command->add_option("--seed", flags->options.seed, "Of problem, start, schedule and delays")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 9e18));
  command->add_option("--seeds", flags->seeds, "Run so many seeds, from --seed on, one line each")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 10000.0));
  command->add_flag("--counter-example", flags->counter_example, "Show why disjoint masks need a max-norm");
  command->add_option("--svg", flags->svg, "Write a plot of error and bound to this file");
  command->add_option("--csv", flags->csv, "Write the error after every step to this file");
  command->add_flag("--json", flags->json, "Print one JSON object as the last line");
  command->footer(
      "A sweep ends when every block has been updated from values of after the sweep before, and nobody reads older ones any more.\n"
      "The theory: each sweep leaves at most max alpha_l of the error, whatever the schedule and the delays.\n"
      "\nExamples:\n"
      "  starling converge --delays bounded:8                           four workers, random updates, values up to 8 steps old\n"
      "  starling converge --delays growing --local-steps 4             delays without bound, up to half of k\n"
      "  starling converge --idle-block 3                               one worker never works: no convergence\n"
      "  starling converge --masks uniform --local-steps 1,2,4,8        averaging, E_k = I/M: contraction in l2\n"
      "  starling converge --problem logistic --delays bounded:20 --svg error.svg\n"
      "  starling converge --problem laplace --dimension 8              contracts in a weighted max-norm only\n"
      "  starling converge --delays bounded:8 --seeds 100               the bound against a hundred random runs\n"
      "  starling converge --counter-example                            why not l2 with disjoint masks\n"
      "\nExit code 0: the outcome agrees with the theory (also where that is no convergence); 1: a sweep exceeds the bound; 2: wrong "
      "flags.");
  command->callback([flags] { run_converge(*flags); });
}

}  // namespace starling::cli
