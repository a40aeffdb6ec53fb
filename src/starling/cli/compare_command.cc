// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "starling/base/error.h"
#include "starling/cli/commands.h"
#include "starling/cli/compare_console.h"
#include "starling/cli/compare_flags.h"
#include "starling/cli/interrupts.h"
#include "starling/lab/comparison.h"
#include "starling/lab/comparison_table.h"
#include "starling/lab/grid.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;

void say(const std::string& text) {
  static_cast<void>(std::fputs(text.c_str(), stderr));
  static_cast<void>(std::fflush(stderr));
}

// A file has its place, so that the same command goes on there; flags alone make a comparison of their own every time.
std::string folder_of(const CompareFlags& flags, const lab::Grid& grid) {
  if (!flags.train.out.empty()) return flags.train.out;
  if (!grid.out.empty()) return grid.out;
  if (!flags.file.empty()) return fmt::format("runs/{}", fs::path(flags.file).stem().string());
  for (int number = 1;; ++number) {
    std::string path = fmt::format("runs/compare-{}", number);
    std::error_code error;
    if (!fs::exists(path, error)) return path;
  }
}

void announce(const CompareFlags& flags, const lab::Grid& grid, const lab::Comparison& comparison, const std::string& folder) {
  std::size_t ended = 0;
  bool real = false;
  for (const lab::PlannedRun& planned : comparison.runs()) {
    if (planned.ended) ++ended;
    real = real || planned.config.fabric.name != "sim";
  }
  say(fmt::format("{} cells, {} runs, into {}\n", grid.cells.size(), comparison.runs().size(), folder));
  if (ended > 0) say(fmt::format("{} of them have ended before; going on\n", ended));
  if (real) say("note: on threads runs go one after the other, and only strategies in lockstep repeat exactly; --fabric sim always does\n");
  if (flags.train.out.empty() && !flags.file.empty() && ended == 0) say("The same command will go on there.\n");
}

void finish(const CompareFlags& flags, const CLI::App& command, const lab::Comparison& comparison, const lab::ComparisonResult& result,
            const std::string& folder) {
  if (!result.title.empty()) fmt::print("{}\n\n", result.title);
  fmt::print("{}\n", lab::to_tables(result, flags.markdown ? lab::TableForm::markdown : lab::TableForm::plain));
  fmt::print("more in {}: comparison.json, comparison.csv, and the runs in cells/\n", folder);
  std::fflush(stdout);
  if (comparison.interrupted()) {
    say(fmt::format("Interrupted after {} of {} runs. To go on:\n  {} --out {}\n", result.runs(), comparison.runs().size(),
                    command_of(command, true), folder));
    throw ExitCode{kInterrupted};
  }
  if (result.failed() == 0) return;
  say(fmt::format("starling: {} of {} runs failed:\n", result.failed(), result.runs()));
  for (const lab::CellOutcome& cell : result.cells) {
    for (const lab::RunOutcome& outcome : cell.runs) {
      if (outcome.failed()) say(fmt::format("  {}: {}\n", outcome.path, outcome.reason));
    }
  }
  throw ExitCode{1};
}

void run_compare(const CompareFlags& flags, const CLI::App& command) {
  catch_interrupts();
  const lab::Grid grid = lab::read_grid(to_source(flags));
  if (flags.dry_run) {
    fmt::print("{}", lab::describe(grid, lab::plan(grid, lab::GridData(grid))));
    return;
  }
  const std::string folder = folder_of(flags, grid);
  CompareConsole console;
  lab::Comparison comparison(grid, {.directory = folder,
                                    .command = command_of(command, false),
                                    .jobs = flags.jobs,
                                    .fresh = flags.fresh,
                                    .stop = interrupted,
                                    .observer = &console});
  announce(flags, grid, comparison, folder);
  console.begin(comparison.runs());
  const lab::ComparisonResult result = comparison.run();
  console.clear();
  finish(flags, command, comparison, result, folder);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compare", "Compare strategies and settings: a grid of runs, with means over seeds");
  auto flags = std::make_shared<CompareFlags>();
  add_compare_flags(*command, *flags);
  command->callback([flags, command] { run_compare(*flags, *command); });
}

}  // namespace starling::cli
