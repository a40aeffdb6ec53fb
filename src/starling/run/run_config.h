// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Everything a training run is made of, as read from a configuration file and from flags. The keys and their defaults are described in
// docs/training.md.
//
//   RunConfig config = read_run_config("run.toml");
//   config.epochs = 10;                          // Flags on top of the file.
//   validate(config);
//   write_file_atomically("runs/a/config.toml", to_toml(config), "configuration");
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/time.h"
#include "starling/optim/optimiser.h"
#include "starling/optim/schedule.h"
#include "starling/run/fabric_config.h"
#include "starling/strategy/registry.h"

namespace starling::run {

// What to do with a batch whose loss or gradient is not a finite number.
enum class OnNan {
  stop,  // The run ends there; its last checkpoint is from before.
  skip,  // The batch is counted and left out.
};

struct RunConfig {
  std::string model = "lenet5";
  std::string data = "fashion-mnist";
  std::string data_folder{};  // Where files are looked for first; "" for the usual places.

  std::string partition = "shared";  // Which worker has which samples (data/partition.h).
  double validation = 0;             // A fraction of the training samples that is held out, to choose among the workers' models by.

  std::string strategy{};                        // "" for sequential with one worker and sync with more.
  std::map<std::string, std::string> options{};  // Of the strategy; those left out have their defaults.
  int workers = 1;
  std::optional<int> servers{};  // Without a value: one where the strategy has servers, else none.
  std::string codec = "fp32";

  std::uint64_t epochs = 3;
  OnNan on_nan = OnNan::stop;
  optim::OptimiserOptions optimiser{.name = "momentum"};
  optim::ScheduleOptions schedule{.lr = 0.02};  // Its epochs are those above.

  std::string out{};                                        // The run directory; "" for the next free number in runs/. Not written.
  std::uint64_t evaluate_every = 1;                         // Epochs; 0 for the end only.
  std::uint64_t checkpoint_every = 1;                       // Epochs; 0 for the end only.
  Duration checkpoint_interval = std::chrono::seconds(60);  // Besides, whenever so much time has passed; 0 for never.
  std::uint64_t metrics_every = 100;                        // Steps from one record to the next; 0 for epochs only.
  std::uint64_t snapshots = 0;                              // Of the weights, per epoch; 0 for none.
  FabricConfig fabric{};                                    // With its seed, which is the run's.

  std::uint64_t seed() const { return fabric.sim.seed; }
  const std::string& strategy_name() const;
  // Throws UserError for an option that the strategy does not have or a value that does not fit.
  strategy::Settings settings(const strategy::Description& description) const;
  strategy::Roles roles(const strategy::Description& description) const;
  // The schedule's options with the number of epochs filled in.
  optim::ScheduleOptions schedule_options() const;
};

// Reads a TOML file. Throws UserError, with file, line and key, for a file that cannot be read or parsed, an unknown key (with the nearest
// valid one), and a value of the wrong type.
RunConfig read_run_config(const std::string& path);

// The same from a text; `origin` stands for the file's name in messages.
RunConfig parse_run_config(const std::string& text, const std::string& origin);

class TomlTable;

// The same from a table, as one that was merged from several. Keys that were asked for before may stand in it too.
RunConfig read_run_config(TomlTable& file);

// Throws UserError if a value is out of range or a name does not exist, as far as this can be known without data and model.
void validate(const RunConfig& config, const strategy::Registry& registry = strategy::Registry::built_in());

// All keys with their values, `out` left out: reading this repeats the run in another directory.
std::string to_toml(const RunConfig& config);

// The same as lines "optimizer.lr = 0.05", one for each key.
std::vector<std::string> key_lines(const RunConfig& config);

// The first key by which one run would have another result than the other: "train.epochs is 6, but was 3". Nothing if there is none.
std::optional<std::string> difference(RunConfig before, RunConfig now);

// The first difference that would make a run continued with `now` another one than begun with `before`: "optimizer.lr is 0.1, but was
// 0.05". Nothing if there is none: epochs may be more, when to checkpoint, where data lies and whether real ranks are threads or processes
// do not matter, and whether there may be more or fewer workers is not judged here.
std::optional<std::string> conflict(const RunConfig& before, const RunConfig& now);

// Reads "constant", "polynomial:2", "multi-step:30,60:0.1" or "cosine:0.001" into kind, power, milestones, gamma and final rate. Throws
// UserError naming `what`.
void parse_schedule(const std::string& text, std::string_view what, optim::ScheduleOptions& schedule);

// Reads "EPOCHS" or "EPOCHS:FROM" into the warm-up of the batch.
void parse_batch_warmup(const std::string& text, std::string_view what, optim::ScheduleOptions& schedule);

// Reads "NAME.OPTION=VALUE" into the options. Throws UserError if NAME is not the strategy of the run.
void parse_setting(const std::string& text, std::string_view what, RunConfig& config);

// Reads "all:30ms", "one:30ms" (twice as long on worker 1) or "gauss:30ms:5ms" into delays that every worker meets between computing a
// gradient and sending it.
void parse_delay(const std::string& text, std::string_view what, RunConfig& config);

// Reads "RANKS:FACTOR", as in "1:0.5" or "2-3:0.25", into a speed.
void parse_speed(const std::string& text, std::string_view what, RunConfig& config);

OnNan parse_on_nan(const std::string& text, std::string_view what);

}  // namespace starling::run
