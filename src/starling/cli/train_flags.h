// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The flags of `starling train`, and how they go on top of a configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "starling/fabric/mpi/mpi_job.h"
#include "starling/run/run_config.h"

namespace CLI {
class App;
}

namespace starling::cli {

// What was given; a flag that was not leaves the configuration as it is.
struct TrainFlags {
  std::optional<std::string> model;
  std::optional<std::string> data;
  std::optional<std::string> data_folder;
  std::optional<std::string> partition;
  std::optional<double> validation;
  std::string trace;
  std::optional<std::string> watch;  // A port; "" for any.
  std::optional<std::string> strategy;
  std::vector<std::string> settings;
  std::optional<int> workers;
  std::optional<int> servers;
  std::optional<std::string> codec;
  std::vector<std::string> delays;
  std::vector<std::string> speeds;
  std::optional<std::uint64_t> epochs;
  std::optional<std::size_t> batch;
  std::optional<std::string> optimiser;
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::optional<double> clip_norm;
  std::optional<std::string> schedule;
  std::optional<double> warmup;
  std::optional<std::string> batch_warmup;
  bool two_stage = false;
  std::optional<std::string> on_nan;
  std::optional<std::uint64_t> seed;
  std::optional<std::string> fabric;
  std::optional<std::uint64_t> evaluate_every;
  std::optional<std::uint64_t> checkpoint_every;
  std::optional<std::string> checkpoint_interval;
  std::optional<std::uint64_t> metrics_every;
  std::optional<std::uint64_t> snapshots;
  std::string out;
  std::string config;
  std::string resume;
  std::string checkpoint;
  bool tensorboard = false;
  bool json = false;
};

// The flags must outlive the parser's work.
void add_train_flags(CLI::App& command, TrainFlags& flags);

// In a job, roles are laid over its ranks (launch.h). Throws UserError for a value that cannot be read, or roles that do not fit.
void apply(const TrainFlags& flags, const fabric::MpiJob* job, run::RunConfig& config);

}  // namespace starling::cli
