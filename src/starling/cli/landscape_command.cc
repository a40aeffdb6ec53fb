// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/base/notifier.h"
#include "starling/base/stopwatch.h"
#include "starling/cli/commands.h"
#include "starling/cli/interrupts.h"
#include "starling/cli/status_line.h"
#include "starling/compute/model.h"
#include "starling/data/dataset.h"
#include "starling/lab/landscape.h"
#include "starling/lab/report.h"
#include "starling/run/run_config.h"
#include "starling/run/run_directory.h"
#include "starling/run/snapshots.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
  std::vector<std::string> runs;
  std::size_t grid = 25;
  std::optional<std::size_t> samples;
  double margin = 0.2;
  std::optional<int> jobs;
  std::string data_folder;
  std::string out;
};

// All of one model and one data set: points of another would be of another space.
run::RunConfig common_config(const std::vector<std::string>& runs) {
  run::RunConfig first = run::RunDirectory::read_config(runs[0]);
  for (const std::string& run : runs) {
    const run::RunConfig config = run::RunDirectory::read_config(run);
    const auto compare = [&](const char* what, const std::string& expected, const std::string& actual) {
      if (expected == actual) return;
      throw UserError(fmt::format("the {} of '{}' is '{}', but that of '{}' is '{}': a landscape shows runs of one model on one data set",
                                  what, runs[0], expected, run, actual));
    };
    compare("model", first.model, config.model);
    compare("data set", first.data, config.data);
  }
  return first;
}

// The folder of a comparison stands for its runs that have snapshots. A run that is given twice counts once.
std::vector<std::string> runs_of(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> runs;
  std::vector<fs::path> seen;
  const auto add = [&](const std::string& run) {
    const fs::path canonical = fs::weakly_canonical(run) / "";
    if (std::find(seen.begin(), seen.end(), canonical) != seen.end()) return;
    seen.push_back(canonical);
    runs.push_back(run);
  };
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::exists(path + "/comparison.json", error)) {
      add(path);
      continue;
    }
    std::vector<std::string> found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path + "/cells")) {
      if (entry.path().filename() == "snapshots") found.push_back(entry.path().parent_path().string());
    }
    if (found.empty()) {
      throw UserError(fmt::format(
          "no run of the comparison '{}' has snapshots of its weights; they are kept with run.snapshots = 3 in its file", path));
    }
    std::sort(found.begin(), found.end());
    for (const std::string& run : found) add(run);
  }
  return runs;
}

std::vector<lab::WeightTrajectory> read_trajectories(const std::vector<std::string>& runs) {
  std::vector<lab::WeightTrajectory> trajectories;
  trajectories.reserve(runs.size());
  for (const std::string& run : runs) trajectories.push_back({.name = run, .snapshots = run::read_snapshots(run)});
  return trajectories;
}

data::Samples samples_to_test(const Flags& flags, const run::RunConfig& config) {
  const std::string& folder = flags.data_folder.empty() ? config.data_folder : flags.data_folder;
  data::Samples samples = data::load_dataset(config.data, folder).test;
  if (samples.count == 0) throw UserError(fmt::format("the data set '{}' has no samples to test with", config.data));
  if (!flags.samples || *flags.samples >= samples.count) return samples;
  return data::subset(samples, lab::choose_evenly(samples, *flags.samples));
}

// Evaluations done, and how long the others will take at that rate.
class Console {
 public:
  void progressed(std::size_t done, std::size_t all) {
    const double seconds = watch_.seconds();
    const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
    const std::string text = fmt::format("{} of {} points  left {}", done, all, time_text(left));
    if (seconds - shown_ < (line_.is_terminal() ? kSecondsBetweenUpdates : kSecondsBetweenLines)) return;
    shown_ = seconds;
    line_.is_terminal() ? line_.show(text) : line_.print(text);
  }
  const StatusLine& line() const { return line_; }

 private:
  static constexpr double kSecondsBetweenUpdates = 0.2;
  static constexpr double kSecondsBetweenLines = 10;
  StatusLine line_;
  Stopwatch watch_;
  double shown_ = 0;
};

// Made before the work, so that a folder that cannot be written to is known before it; removed again if the work has no result.
class OutputFolder {
 public:
  explicit OutputFolder(std::string path) : path_(std::move(path)), existed_(fs::exists(path_)) {
    make_folders(path_, "folder of the landscape");
  }
  ~OutputFolder() {
    std::error_code error;
    if (!existed_ && !kept_) fs::remove(path_, error);  // Only if it is empty.
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  void write(const std::string& name, const std::string& contents, const char* what) {
    write_file_atomically(path_ + "/" + name, contents, what);
    kept_ = true;
  }

 private:
  std::string path_;
  bool existed_;
  bool kept_ = false;
};

void run_landscape(Flags flags) {
  catch_interrupts();
  const std::string home = flags.runs[0];
  flags.runs = runs_of(flags.runs);
  const run::RunConfig config = common_config(flags.runs);
  const std::vector<lab::WeightTrajectory> trajectories = read_trajectories(flags.runs);
  const data::Samples samples = samples_to_test(flags, config);
  const compute::Problem problem = compute::Problem::of(samples);
  const auto make_replica = [&] { return compute::make_replica(config.model, problem, config.seed(), 0); };
  const std::string out = flags.out.empty() ? home + "/landscape" : flags.out;
  OutputFolder folder(out);
  Console console;
  lab::LandscapeOptions options{.title = fmt::format("{} on {}", config.model, config.data), .grid = flags.grid, .margin = flags.margin};
  options.jobs = flags.jobs.value_or(usable_cores());
  options.progressed = [&](std::size_t done, std::size_t all) { console.progressed(done, all); };
  options.stop = interrupted;
  const std::optional<lab::Landscape> landscape = lab::make_landscape(trajectories, samples, make_replica, options);
  console.line().clear();
  if (!landscape) {
    console.line().print("Interrupted: nothing was written.");
    throw ExitCode{kInterrupted};
  }
  for (const std::string& note : landscape->notes) console.line().print(fmt::format("note: {}", note));
  folder.write("landscape.csv", lab::grid_to_csv(*landscape), "losses of the landscape");
  folder.write("trajectories.csv", lab::trajectories_to_csv(*landscape), "trajectories of the landscape");
  folder.write("landscape.json", lab::to_json(*landscape), "landscape");
  std::vector<std::string> shown{out};
  shown.insert(shown.end(), flags.runs.begin(), flags.runs.end());
  try {
    folder.write("report.html", lab::make_report({.paths = shown}), "report");
  } catch (const UserError& error) {  // The numbers are there all the same.
    console.line().print(fmt::format("note: there is no report: {}", error.what()));
  }
  std::size_t snapshots = 0;
  for (const lab::LandscapeTrajectory& trajectory : landscape->trajectories) snapshots += trajectory.points.size();
  fmt::print("{}: {} run{}, {} snapshots of {} weights; {} x {} points, {} samples each\n\n{}\nwritten to {}\n", landscape->title,
             flags.runs.size(), flags.runs.size() == 1 ? "" : "s", snapshots, landscape->weights, flags.grid, flags.grid,
             landscape->samples, lab::to_text(*landscape), out);
}

}  // namespace

void add_landscape_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("landscape", "The loss around the ways that runs took: a plane through their snapshots");
  auto flags = std::make_shared<Flags>();
  constexpr std::size_t kLargestGrid = 1000;
  command->add_option("runs", flags->runs, "Run directories, or those of comparisons, of one model and one data set")->required();
  command->add_option("--grid", flags->grid, "Points along each side")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{2}, kLargestGrid));
  command->add_option("--samples", flags->samples, "So many of the test set, of all classes alike [all]")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1'000'000'000}));
  command->add_option("--margin", flags->margin, "Room around the snapshots, as a fraction of what they span")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 10.0))
      ->check([](const std::string& text) { return text.find_first_of("nN") == std::string::npos ? "" : "it must be a number"; });
  command->add_option("--jobs", flags->jobs, "Points evaluated at a time; each takes a replica [one per core]")->check(CLI::Range(1, 1024));
  command->add_option("--data-folder", flags->data_folder, "Where the files of the data set are looked for first");
  command->add_option("--out", flags->out, "The folder for the files [landscape in the first run]");
  command->footer(
      "Snapshots are kept by starling train --snapshots 3: the first weights, and three in every epoch.\n"
      "\nExamples:\n"
      "  starling landscape runs/1\n"
      "  starling landscape runs/sync runs/async --samples 2000 --out landscapes/sync-async");
  command->callback([flags] { run_landscape(*flags); });
}

}  // namespace starling::cli
