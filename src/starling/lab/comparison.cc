// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <tuple>

#include "starling/base/error.h"
#include "starling/base/notifier.h"
#include "starling/base/work_pool.h"
#include "starling/compute/model.h"
#include "starling/data/partition.h"
#include "starling/run/replica_set.h"
#include "starling/run/run_directory.h"
#include "starling/run/run_result.h"
#include "starling/strategy/registry.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGridFile = "comparison.toml";

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Nothing if there is no such file, or it cannot be read.
std::optional<std::string> text_of(const std::string& path) {
  if (!exists(path)) return std::nullopt;
  try {
    return read_file(path, "result of the run");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// A folder in which there is anything but a comparison is left alone.
void require_own_folder(const std::string& directory) {
  std::error_code error;
  if (!fs::exists(directory, error) || exists(fmt::format("{}/{}", directory, kGridFile))) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "lock" || name.starts_with(kGridFile)) continue;  // Of one that was killed before it had written more.
    throw UserError(fmt::format("in '{}' there is something else than a comparison, such as '{}'; give another --out", directory, name));
  }
}

strategy::Description description_of(const run::RunConfig& config) { return strategy::Registry::built_in().find(config.strategy_name()); }

// The model must fit the data. Strategies that train parts of it say whether they can when they are asked for the parts.
void check_model(const run::RunConfig& config, const data::Dataset& dataset) {
  if (description_of(config).trains_parts) {
    const run::ReplicaSet replicas(config, dataset);
  } else {
    static_cast<void>(compute::make_replica(config.model, compute::Problem::of(dataset.train), config.seed(), 0));
  }
}

// The result of a run whose checkpoints are removed does not name one.
void forget_checkpoint(const std::string& run_path) {
  const std::string path = fmt::format("{}/result.json", run_path);
  const std::optional<std::string> text = text_of(path);
  if (!text) return;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (!json.is_object() || json.value("checkpoint", "").empty()) return;
  json["checkpoint"] = "";
  write_file_atomically(path, fmt::format("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)),
                        "result of the run");
}

}  // namespace

// Passes what one run says on, one run at a time.
class Comparison::Relay final : public run::TrainObserver {
 public:
  Relay(Comparison& comparison, const PlannedRun& planned) : comparison_(comparison), planned_(planned) {}

  void progressed(const run::Progress& progress) override {
    comparison_.tell([&](ComparisonObserver& observer) { observer.run_progressed(planned_, progress); });
  }
  void epoch_ended(const run::Progress& progress) override { progressed(progress); }
  void noted(const std::string& message) override {
    comparison_.tell([&](ComparisonObserver& observer) { observer.noted(planned_, message); });
  }

 private:
  Comparison& comparison_;
  const PlannedRun& planned_;
};

std::string PlannedRun::name() const { return fmt::format("{}, seed {}", name_of(*cell), config.seed()); }

GridData::GridData(const Grid& grid) {
  std::set<std::tuple<std::string, std::string, std::string, std::string>> models;
  std::set<std::tuple<std::string, std::string, std::string, int>> partitions;
  for (const Cell& cell : grid.cells) {
    const run::RunConfig& config = cell.config;
    const std::pair key{config.data, config.data_folder};
    if (!sets_.contains(key)) {
      cell.locate("data.name", [&] { sets_.emplace(key, data::load_dataset(config.data, config.data_folder)); });
    }
    const data::Dataset& dataset = sets_.at(key);
    const std::string alone = description_of(config).trains_parts ? name_of(cell) : "";  // Parts differ from cell to cell.
    if (models.emplace(config.data, config.data_folder, config.model, alone).second) {
      cell.locate("model.name", [&] { check_model(config, dataset); });
    }
    if (partitions.emplace(config.data, config.data_folder, config.partition, config.workers).second) {
      cell.locate("data.partition",
                  [&] { static_cast<void>(data::partition(dataset.train, config.partition, config.workers, config.seed())); });
    }
  }
}

const data::Dataset& GridData::of(const run::RunConfig& config) const { return sets_.at({config.data, config.data_folder}); }

std::vector<PlannedRun> plan(const Grid& grid, const GridData& data) {
  std::vector<PlannedRun> runs;
  for (const Cell& cell : grid.cells) {
    for (const std::uint64_t seed : grid.seeds) {
      PlannedRun planned{.cell = &cell, .config = cell.config_with(seed), .path = cell.path(seed)};
      const std::uint64_t passes = cell.config.partition == "none" ? static_cast<std::uint64_t>(cell.config.workers) : 1;
      planned.samples = cell.config.epochs * data.of(cell.config).train.count * passes;
      runs.push_back(std::move(planned));
    }
  }
  return runs;
}

std::string describe(const Grid& grid, const std::vector<PlannedRun>& runs) {
  std::uint64_t samples = 0;
  for (const PlannedRun& planned : runs) samples += planned.samples;
  std::string text = fmt::format("{} cells with {} {} each: {} runs, about {} samples\n", grid.cells.size(), grid.seeds.size(),
                                 grid.seeds.size() == 1 ? "seed" : "seeds", runs.size(), samples);
  // What all cells have in common is not worth saying.
  std::map<std::string, std::size_t> counts;
  for (const Cell& cell : grid.cells) {
    const std::vector<std::string> lines = run::key_lines(cell.config);
    const std::set<std::string> different(lines.begin(), lines.end());
    for (const std::string& line : different) ++counts[line];
  }
  for (std::size_t i = 0; i < grid.cells.size(); ++i) {
    std::vector<std::string> own;
    const std::vector<std::string> lines = run::key_lines(grid.cells[i].config);
    for (const std::string& line : lines) {
      if (counts.at(line) < grid.cells.size()) own.push_back(line);
    }
    text +=
        fmt::format("\n{}: {} runs of about {} samples\n", name_of(grid.cells[i]), grid.seeds.size(), runs[i * grid.seeds.size()].samples);
    for (const std::string& line : own) text += fmt::format("  {}\n", line);
  }
  return text;
}

bool is_unfinished(const Grid& grid, const std::string& directory) {
  if (text_of(fmt::format("{}/{}", directory, kGridFile)) != grid.toml) return false;
  for (const Cell& cell : grid.cells) {
    for (const std::uint64_t seed : grid.seeds) {
      const std::optional<std::string> text = text_of(fmt::format("{}/{}/result.json", directory, cell.path(seed)));
      const std::optional<RunOutcome> outcome = text ? read_outcome(*text) : std::nullopt;
      if (!outcome || outcome->failed()) return true;
    }
  }
  return false;
}

Comparison::Comparison(const Grid& grid, ComparisonOptions options)
    : grid_(grid), options_(std::move(options)), data_(grid), runs_(plan(grid, data_)), outcomes_(runs_.size()) {
  require_own_folder(options_.directory);
  make_folders(options_.directory, "folder of the comparison");
  lock_ = std::make_unique<FileLock>(
      fmt::format("{}/lock", options_.directory),
      fmt::format("another process is at work on the comparison '{}'; wait for it, or stop it", options_.directory),
      "lock of the comparison");
  look_around();
  write_file_atomically(fmt::format("{}/{}", options_.directory, kGridFile), grid_.toml, "comparison");
}

Comparison::~Comparison() = default;

std::string Comparison::full_path(const PlannedRun& planned) const { return fmt::format("{}/{}", options_.directory, planned.path); }

// What earlier calls have left. Everything is looked at before anything is removed.
void Comparison::look_around() {
  look_for_other_cells();
  const std::vector<std::string> outdated = look_at_runs();
  for (const std::string& path : outdated) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) throw UserError(fmt::format("cannot remove the outdated run '{}': {}", path, error.message()));
  }
  for (const PlannedRun& planned : runs_) {
    if (planned.ended) tidy_up(planned);
  }
}

// Two files of the same name mean the same folder. Where not a single cell is the same, that was hardly meant.
void Comparison::look_for_other_cells() {
  std::set<std::string> own;
  for (const Cell& cell : grid_.cells) own.insert(fs::path(cell.folder).filename().string());
  std::size_t known = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(fmt::format("{}/cells", options_.directory), error)) {
    if (!entry.is_directory(error)) continue;
    ++(own.contains(entry.path().filename().string()) ? known : cells_left_over_);
  }
  if (cells_left_over_ == 0 || known > 0 || options_.fresh) return;
  throw UserError(fmt::format("'{}' holds another comparison: none of its {} cells is one of this; give --out, or --fresh to go on there",
                              options_.directory, cells_left_over_));
}

// Returns the folders of runs that are to be begun anew: of another configuration, or with books that do not balance.
std::vector<std::string> Comparison::look_at_runs() {
  std::vector<std::string> outdated;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const std::string path = full_path(runs_[i]);
    if (!exists(fmt::format("{}/config.toml", path))) continue;
    const std::optional<std::string> difference = run::difference(run::RunDirectory::read_config(path), runs_[i].config);
    if (difference && !options_.fresh) {
      throw UserError(fmt::format(
          "'{}' has a run of another configuration: {}. Give another --out, or --fresh to run anew what has changed.", path, *difference));
    }
    if (difference) {
      outdated.push_back(path);
    } else if (const std::optional<std::string> text = text_of(fmt::format("{}/result.json", path))) {
      std::optional<RunOutcome> outcome = read_outcome(*text);
      if (!outcome) continue;
      if (outcome->failed()) {
        outdated.push_back(path);
        continue;
      }
      outcome->path = runs_[i].path;
      outcomes_[i] = std::move(outcome);
      runs_[i].ended = true;
    }
  }
  return outdated;
}

// What is left behind costs room, and nothing else.
void Comparison::tidy_up(const PlannedRun& ended) const {
  if (grid_.keep_checkpoints) return;
  try {
    forget_checkpoint(full_path(ended));
  } catch (const UserError&) {
    return;  // The disk may be full. The next call tries again.
  }
  std::error_code error;
  fs::remove_all(fmt::format("{}/checkpoints", full_path(ended)), error);
}

void Comparison::tell(const std::function<void(ComparisonObserver&)>& what) {
  if (options_.observer == nullptr) return;
  const std::lock_guard lock(mutex_);
  what(*options_.observer);
}

// In the simulator one at which an uninterrupted run would have met too, so that going on gives the same times and bytes as well: workers
// in lockstep also write one where they are interrupted, which is passed over. Nothing if there is none that is good.
std::optional<run::Checkpoint> Comparison::checkpoint_of(const PlannedRun& planned) {
  const run::CheckpointStore store(fmt::format("{}/checkpoints", full_path(planned)));
  try {
    if (store.names().empty()) return std::nullopt;
    if (planned.config.fabric.name != "sim") return store.read("latest");
    const std::optional<std::string> name = store.latest_planned();
    if (!name) throw UserError("no checkpoint can be used");
    run::Checkpoint checkpoint = store.read(*name);
    store.go_back_to(*name);
    return checkpoint;
  } catch (const UserError& error) {
    tell([&](ComparisonObserver& observer) { observer.noted(planned, fmt::format("it is begun anew: {}", error.what())); });
    return std::nullopt;
  }
}

// Nothing if it was interrupted.
std::optional<RunOutcome> Comparison::train(const PlannedRun& planned) {
  const data::Dataset& dataset = data_.of(planned.config);
  const std::string path = full_path(planned);
  const run::ReplicaSet replicas(planned.config, dataset);
  Relay relay(*this, planned);
  run::Trainer trainer(planned.config, replicas.pointers(), dataset,
                       {.observer = &relay, .stop = [this] { return stopped(); }, .viewers = replicas.viewers()});
  const bool begun = exists(fmt::format("{}/config.toml", path));
  run::RunDirectory directory = begun ? run::RunDirectory::open(path) : run::RunDirectory::create(path, planned.config);
  const std::optional<run::Checkpoint> checkpoint = begun ? checkpoint_of(planned) : std::nullopt;
  trainer.write_into(directory);
  if (checkpoint) trainer.restore(*checkpoint);
  trainer.run();
  if (trainer.result().ending == run::Ending::interrupted) return std::nullopt;
  return read_outcome(run::to_json(planned.config, planned.path, trainer.result()));
}

void Comparison::run_one(std::size_t index) {
  const PlannedRun& planned = runs_[index];
  if (stopped()) return;
  tell([&](ComparisonObserver& observer) { observer.run_began(planned); });
  std::optional<RunOutcome> outcome;
  try {
    outcome = train(planned);
  } catch (const std::exception& error) {
    outcome = RunOutcome{.seed = planned.config.seed(), .ending = "failed", .reason = error.what()};
  }
  if (!outcome) {
    tell([&](ComparisonObserver& observer) { observer.run_interrupted(planned); });
    return;
  }
  outcome->path = planned.path;
  if (!outcome->failed()) tidy_up(planned);
  const std::lock_guard lock(mutex_);
  outcomes_[index] = outcome;
  write_files_now_and_then();
  if (options_.observer != nullptr) options_.observer->run_ended(planned, *outcome);
}

void Comparison::run_side_by_side(const std::vector<std::size_t>& order) {
  if (order.empty()) return;
  const int jobs = options_.jobs > 0 ? options_.jobs : usable_cores();
  WorkPool pool(static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(jobs), order.size())));
  std::vector<std::function<void()>> work;
  std::deque<WorkPool::Job> submitted;
  work.reserve(order.size());
  for (const std::size_t index : order) {
    work.emplace_back([this, index] { run_one(index); });
    pool.submit(submitted.emplace_back(work.back()));
  }
  std::exception_ptr first;
  for (WorkPool::Job& job : submitted) {
    std::exception_ptr error = pool.finish(job);
    if (error && !first) first = error;
  }
  if (first) std::rethrow_exception(first);
}

ComparisonResult Comparison::run() {
  std::vector<std::size_t> simulated;
  std::vector<std::size_t> real;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    if (!runs_[i].ended) (runs_[i].config.fabric.name == "sim" ? simulated : real).push_back(i);
  }
  // The longest first, so that none of them is left alone at the end.
  std::stable_sort(simulated.begin(), simulated.end(), [&](std::size_t a, std::size_t b) { return runs_[a].samples > runs_[b].samples; });
  run_side_by_side(simulated);
  for (const std::size_t index : real) run_one(index);
  interrupted_ = std::any_of(outcomes_.begin(), outcomes_.end(), [](const auto& outcome) { return !outcome; });
  ComparisonResult found = result();
  write_files(found);
  return found;
}

void Comparison::write_files(const ComparisonResult& found) const {
  write_file_atomically(fmt::format("{}/comparison.json", options_.directory), to_json(found), "result of the comparison");
  write_file_atomically(fmt::format("{}/comparison.csv", options_.directory), to_csv(found), "table of the comparison");
}

// With the mutex held. A grid of many cells has large files, which must not take more than a small part of the time.
void Comparison::write_files_now_and_then() {
  constexpr double kSeconds = 3;
  constexpr double kTimesAsLong = 20;
  const double begin = clock_.seconds();
  if (begin < next_write_) return;
  try {
    write_files(result());
  } catch (const UserError&) {
    // At the end they are written again, and whoever is concerned hears of it.
  }
  const double end = clock_.seconds();
  next_write_ = end + std::max(kSeconds, kTimesAsLong * (end - begin));
}

ComparisonResult Comparison::result() const {
  ComparisonResult result{.title = grid_.title,
                          .command = options_.command,
                          .axes = grid_.axes,
                          .rows = grid_.rows,
                          .columns = grid_.columns,
                          .seeds = grid_.seeds,
                          .values = grid_.values};
  std::size_t index = 0;
  for (const Cell& cell : grid_.cells) {
    CellOutcome& outcome = result.cells.emplace_back();
    outcome.labels = cell.labels;
    for (std::size_t i = 0; i < grid_.seeds.size(); ++i, ++index) {
      if (outcomes_[index]) outcome.runs.push_back(*outcomes_[index]);
    }
  }
  return result;
}

}  // namespace starling::lab
