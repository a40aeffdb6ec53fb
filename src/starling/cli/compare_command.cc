// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/cli/commands.h"
#include "starling/cli/compare_console.h"
#include "starling/cli/compare_flags.h"
#include "starling/cli/interrupts.h"
#include "starling/lab/comparison.h"
#include "starling/lab/comparison_table.h"
#include "starling/lab/grid.h"
#include "starling/lab/report.h"
#include "starling/strategy/registry.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;

void say(const std::string& text) {
  static_cast<void>(std::fputs(text.c_str(), stderr));
  static_cast<void>(std::fflush(stderr));
}

// The newest comparison of flags that is this one and has something left to do; empty if there is none.
std::string unfinished_folder(const lab::Grid& grid) {
  constexpr std::string_view kPrefix = "compare-";
  std::set<int> numbers;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("runs", error)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    if (!name.starts_with(kPrefix)) continue;
    const auto [end, failure] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
    if (failure == std::errc() && end == name.data() + name.size()) numbers.insert(number);
  }
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    std::string path = fmt::format("runs/{}{}", kPrefix, *number);
    if (lab::is_unfinished(grid, path)) return path;
  }
  return "";
}

// A file has its place, so that the same command goes on there; flags alone make a comparison of their own, unless there is one to go on
// with.
std::string folder_of(const CompareFlags& flags, const lab::Grid& grid) {
  if (!flags.train.out.empty()) return flags.train.out;
  if (!grid.out.empty()) return grid.out;
  if (!flags.file.empty()) return fmt::format("runs/{}", fs::path(flags.file).stem().string());
  if (std::string path = unfinished_folder(grid); !path.empty()) {
    say(fmt::format("going on in {}\n", path));
    return path;
  }
  for (int number = 1;; ++number) {
    std::string path = fmt::format("runs/compare-{}", number);
    std::error_code error;
    if (!fs::exists(path, error)) return path;
  }
}

// Where everybody is alone, strategies for many have nothing to do.
std::string note_on_single_workers(const lab::Grid& grid) {
  const strategy::Registry registry = strategy::Registry::built_in();
  std::set<std::string> strategies;
  for (const lab::Cell& cell : grid.cells) {
    if (cell.config.workers > 1) return "";
    if (!registry.find(cell.config.strategy_name()).one_worker_only) strategies.insert(cell.config.strategy_name());
  }
  if (strategies.empty()) return "";
  return fmt::format("note: every cell has one worker, with which {} have nobody to exchange with; give --workers, or strategy.workers\n",
                     fmt::join(strategies, ", "));
}

// Of the terminal that tables go to.
std::size_t table_width() {
  winsize size{};
  constexpr std::size_t kElsewhere = 160;
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kElsewhere;
}

void announce(const CompareFlags& flags, const lab::Grid& grid, const lab::Comparison& comparison, const std::string& folder) {
  std::size_t ended = 0;
  bool real = false;
  for (const lab::PlannedRun& planned : comparison.runs()) {
    if (planned.ended) ++ended;
    real = real || planned.config.fabric.name != "sim";
  }
  say(fmt::format("{} cells, {} runs, into {}\n", grid.cells.size(), comparison.runs().size(), folder));
  if (const std::size_t others = comparison.cells_left_over(); others > 0) {
    say(fmt::format("note: {} cells in {}/cells are not of this comparison; they stay there, and are in no table\n", others, folder));
  }
  say(note_on_single_workers(grid));
  if (ended > 0) say(fmt::format("{} of them have ended before; going on\n", ended));
  if (real) say("note: on threads runs go one after the other, and only strategies in lockstep repeat exactly; --fabric sim always does\n");
  if (flags.train.out.empty() && !flags.file.empty() && ended == 0) say("The same command will go on there.\n");
}

// The page is a view of what is there; without it nothing is lost.
void write_report(const std::string& folder) {
  try {
    write_file_atomically(folder + "/report.html", lab::make_report({.paths = {folder}}), "report");
  } catch (const UserError& error) {
    say(fmt::format("note: there is no report: {}\n", error.what()));
  }
}

void finish(const CompareFlags& flags, const CLI::App& command, const lab::Comparison& comparison, const lab::ComparisonResult& result,
            const std::string& folder) {
  if (!result.title.empty()) fmt::print("{}\n\n", lab::printable(result.title));
  fmt::print("{}\n", lab::to_tables(result, flags.markdown ? lab::TableForm::markdown : lab::TableForm::plain, table_width()));
  fmt::print("more in {}: report.html, comparison.json, comparison.csv, and the runs in cells/\n", folder);
  std::fflush(stdout);
  if (comparison.interrupted()) {
    say(fmt::format("Interrupted after {} of {} runs. To go on:\n  {} --out {}\n", result.runs(), comparison.runs().size(),
                    command_of(command, true), shell_word(folder.starts_with('-') ? fmt::format("./{}", folder) : folder)));
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
  write_report(folder);
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
