// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Training on one worker, as the body of a rank: it asks its endpoint for the time and for computing, and so runs on threads and in the
// simulator alike.
//
//   Trainer trainer(config, *replica, dataset, {.directory = &directory, .observer = &observer, .stop = [] { return interrupted; }});
//   if (checkpoint) trainer.restore(*checkpoint);
//   make_fabric(config.fabric)->run([&](fabric::Endpoint& endpoint) { return trainer.run(endpoint); }).rethrow();
//   trainer.result();
//
// The weights after a run are a function of configuration, data and seed. Stopping it at any step and going on from the checkpoint does not
// change a bit of them, and of the metrics only the times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "starling/compute/replica.h"
#include "starling/data/batches.h"
#include "starling/data/dataset.h"
#include "starling/fabric/endpoint.h"
#include "starling/optim/schedule.h"
#include "starling/optim/two_stage.h"
#include "starling/run/checkpoint.h"
#include "starling/run/metrics.h"
#include "starling/run/run_config.h"
#include "starling/run/run_directory.h"

namespace starling::run {

// Where a run stands, for people to see.
struct Progress {
  std::uint64_t step = 0;
  double epoch = 0;  // As a fraction.
  std::uint64_t epochs = 0;
  std::uint64_t samples = 0;
  std::uint64_t skipped = 0;      // Batches.
  double samples_per_second = 0;  // Since the run was started or resumed.
  double seconds = 0;             // Since the run was started or resumed, all included.
  double seconds_left = 0;
  std::optional<double> train_loss{};  // Mean of this epoch so far; at the end of an epoch, of that epoch.
  std::optional<double> test_loss{};   // Of the last evaluation.
  std::optional<double> test_accuracy{};
};

// Hears of the course of a run, on the thread of its rank. Must not throw.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void progressed(const Progress&) {}  // A few times a second.
  virtual void epoch_ended(const Progress&) {}
  virtual void checkpoint_written(const std::string& path) { (void)path; }
  virtual void noted(const std::string& message) { (void)message; }  // Something unusual that is no failure.
};

enum class Ending { finished, interrupted, diverged };

struct TrainResult {
  Ending ending = Ending::finished;
  std::string reason{};  // "at step 12 the loss is nan", where it diverged.
  RunState state{};
  double epochs = 0;                   // Done, as a fraction.
  std::optional<double> train_loss{};  // Of the last epoch, complete or not.
  std::string weights_sha256{};
  std::string checkpoint{};  // The path of the last one written or read; empty without a run directory.
};

// What a trainer works with, besides model and data. All of it is optional, and outlives the trainer.
struct TrainerOptions {
  RunDirectory* directory = nullptr;  // Without one nothing is written.
  TrainObserver* observer = nullptr;
  std::function<bool()> stop{};  // Asked after every step; true ends the run with a checkpoint.
};

// Not thread-safe.
class Trainer {
 public:
  // The replica has the first weights of the run. Throws UserError if configuration and model do not fit.
  Trainer(const RunConfig& config, compute::Replica& replica, const data::Dataset& dataset, TrainerOptions options);
  ~Trainer();

  // Goes on from a checkpoint. Throws UserError if it is of another model, other data, or another configuration.
  void restore(const Checkpoint& checkpoint);

  // The body of the rank: trains to the end of the configured epochs, or until stopped or diverged. Throws UserError if a file cannot be
  // written. Precondition: a fabric of one rank.
  Status run(fabric::Endpoint& endpoint);

  const TrainResult& result() const { return result_; }

 private:
  bool step(fabric::Endpoint& endpoint);
  bool skip(const std::string& what);
  void end_epoch(fabric::Endpoint& endpoint);
  bool write_checkpoint(fabric::Endpoint& endpoint);
  void diverge(const std::string& what);
  void report(fabric::Endpoint& endpoint);
  void finish();
  MetricsRecord make_record(const char* kind) const;
  void count_time(fabric::Endpoint& endpoint);
  double epoch() const;
  Progress progress() const;
  std::optional<double> running_loss() const;

  RunConfig config_;
  compute::Replica& replica_;
  const data::Dataset& dataset_;
  TrainerOptions options_;
  optim::Schedule schedule_;
  std::unique_ptr<optim::Optimiser> optimiser_;
  optim::TwoStage* two_stage_ = nullptr;  // The optimiser, if it is that.
  data::BatchOrder order_;
  std::optional<CheckpointStore> store_;
  std::optional<MetricsLog> metrics_;
  std::string config_text_;
  std::string data_text_;
  std::vector<float> buffers_;  // As they were before the batch, where it may have to be skipped.
  RunState state_;
  TrainResult result_;
  double last_lr_ = 0;
  std::size_t last_batch_ = 0;
  std::optional<std::uint64_t> checkpointed_step_;  // The step of the last checkpoint written or read.
  Time clock_ = Time::zero();                       // When training went on after the last pause.
  Time last_report_ = Time::zero();
  Time last_checkpoint_ = Time::zero();
  double earlier_total_seconds_ = 0;  // Of the run before it was resumed; likewise below.
  double earlier_seconds_ = 0;
  double earlier_epochs_ = 0;
};

// Loss and correct answers over a set. `predictions` is empty or has one element per sample. Allocates once.
compute::Evaluation evaluate(compute::Replica& replica, const data::Samples& samples, std::span<std::int32_t> predictions);

// "60000 samples, 10000 to test, …": what tells these data from others of the same name, as when files were exchanged.
std::string fingerprint(const data::Dataset& dataset);

// True if no value is infinite or NaN.
bool all_finite(std::span<const float> values);

}  // namespace starling::run
