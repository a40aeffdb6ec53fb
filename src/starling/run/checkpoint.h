// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The state of a run on disk, such that a run continued from it is the same, bit for bit, as one never stopped.
//
// A checkpoint is a folder, step-00001234, with weights.safetensors, state.safetensors, state.json, and SHA256SUMS over the three, as
// sha256sum -c reads it. It is made under another name, synchronised with the disk, and renamed; after that the file `latest` is replaced,
// which names the newest. So whenever the process or the machine dies, `latest` names a complete one. The newest two are kept, the
// newest that does not come from an interruption, and the newest at the end of an epoch.
//
//   CheckpointStore store("runs/a/checkpoints");
//   store.write({.state = state, .weights = replica.weights(), ...});
//   Checkpoint checkpoint = store.read("latest");
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/time.h"
#include "starling/data/batches.h"
#include "starling/params/layout.h"
#include "starling/run/safetensors.h"

namespace starling::run {

// Where one worker stands.
struct WorkerState {
  data::BatchOrder::Position progress{};  // The same for all workers that have taken equally many steps; its number is the step.
  data::BatchOrder::Position order{};     // In the worker's own samples.
  std::uint64_t samples = 0;              // Used so far; those of skipped batches not.
  std::uint64_t skipped = 0;              // Batches left out because of a loss or gradient that was not finite,
  std::uint64_t skipped_in_a_row = 0;     // and how many of them came last.
  double epoch_loss_sum = 0;              // Over the samples of its current epoch.
  std::uint64_t epoch_samples = 0;

  bool operator==(const WorkerState&) const = default;
};

// Where a run stands, apart from vectors of floats.
struct RunState {
  data::BatchOrder::Position position{};  // Of the worker that is furthest. Its number is the step.
  std::uint64_t steps = 0;                // Of all workers together. It names the checkpoint.
  std::int64_t steps_before = 0;          // Besides those of the workers, where there once were more or fewer of them.
  std::uint64_t samples = 0;              // Of all workers; likewise below.
  std::uint64_t skipped = 0;
  double seconds = 0;  // Of training, evaluation and checkpoints not counted.
  double total_seconds = 0;
  std::optional<double> train_loss{};  // Of the last complete epoch.
  std::optional<double> test_loss{};   // Of the last evaluation.
  std::optional<double> test_accuracy{};
  std::optional<double> best_test_accuracy{};
  std::uint64_t metrics_bytes = 0;                 // How long the metrics were.
  std::uint64_t stretches = 0;                     // How often all ranks have met.
  Time clock = Time::zero();                       // What the clock of the fabric showed.
  std::vector<WorkerState> workers{};              // One per worker.
  std::map<std::string, std::uint64_t> numbers{};  // Of strategies and codecs: "rank0/optimizer/steps".
  std::string ledger{};                            // As it writes itself; empty before the first step.

  bool operator==(const RunState&) const = default;
};

// What a checkpoint is written from.
struct CheckpointContents {
  struct Vector {
    std::string name;
    std::span<const float> values;
  };

  const RunState& state;
  std::string config;  // As TOML.
  std::string model;   // As the replica describes itself.
  std::string data;    // What tells these data from others.
  const params::Layout& layout;
  std::span<const float> weights;  // Of the result so far.
  std::vector<Vector> vectors{};   // Everything else: replicas that differ from it, optimisers, residuals.
  // It is there only because the run was interrupted: one that was not would have gone on without it, and without the meeting for it.
  bool interrupted = false;
  std::function<void()> progress{};  // Called again and again while it is written, which may take long.
};

// What was read. All parts are consistent with their checksums.
struct Checkpoint {
  std::string name{};  // "step-00001234".
  std::string path{};
  RunState state{};
  std::string config{};
  std::string model{};
  std::string data{};
  Safetensors weights{};
  Safetensors vectors{};  // One tensor for each vector of the rest.
};

// Not thread-safe; one store at a time writes to a folder. Throws UserError when the system refuses to read or write.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder) : folder_(std::move(folder)) {}

  // Returns the name. If it cannot be written, what was there is as before.
  std::string write(const CheckpointContents& contents);

  // Makes an older checkpoint the latest, as a run does that goes on from it: what comes later will be written anew.
  void make_latest(const std::string& name) const;

  // The name in `latest`; nothing if no checkpoint was ever written.
  std::optional<std::string> latest() const;

  // The newest that the run would have written if it had never been interrupted. Nothing if there is none.
  std::optional<std::string> latest_planned() const;

  // The newest at which all workers are at the end of the same epoch, or at the beginning. Nothing if there is none.
  std::optional<std::string> latest_epoch_end() const;

  // Removes all that are newer than this one, which becomes the latest: they belong to a course that is given up.
  void go_back_to(const std::string& name) const;

  // All that are complete by name, from the oldest to the newest.
  std::vector<std::string> names() const;

  // `name` may be "latest" (the newest, if nothing says which is), a name, or the number of a step. Throws UserError if it does not exist,
  // is truncated or altered, with the file and the reason, and names another that is good if there is one.
  Checkpoint read(const std::string& name) const;

 private:
  void write_folder(const CheckpointContents& contents, const std::string& name) const;
  void remove_others(std::uint64_t step) const;
  bool is_planned(const std::string& name) const;
  bool is_at_epoch_end(const std::string& name) const;
  std::string advice(const std::string& except) const;

  std::string folder_;
};

}  // namespace starling::run
