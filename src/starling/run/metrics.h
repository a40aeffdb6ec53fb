// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The course of a run as JSON lines, one object per record. What the fields mean is said in docs/training.md.
//
//   MetricsLog log("runs/a/metrics.jsonl", state.metrics_bytes);    // A resumed run goes on where its checkpoint was written.
//   log.append({.kind = "epoch", .step = 938, .epoch = 1, ...});
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "starling/base/file.h"

namespace starling::run {

struct MetricsRecord {
  std::string kind{};         // "step" or "epoch".
  std::uint64_t step = 0;     // Batches so far.
  double epoch = 0;           // Epochs so far, as a fraction.
  std::uint64_t samples = 0;  // Samples so far.
  double seconds = 0;         // Of training so far, evaluation and checkpoints not counted.
  double samples_per_second = 0;
  double lr = 0;  // Of the last step, like the batch.
  std::size_t batch = 0;
  std::optional<double> loss{};  // Of the last batch.
  std::optional<double> gradient_norm{};
  std::optional<double> weight_norm{};  // Of the parameters of the worker that records.
  // Of runs that exchange something.
  std::optional<std::uint64_t> applications{};  // Of updates so far, at all places together.
  std::optional<double> staleness{};            // In versions: the mean since the record or checkpoint before.
  std::optional<double> skew{};                 // Between the servers' versions in a pull of this worker: the mean so far.
  std::optional<std::uint64_t> bytes_sent{};    // By all ranks so far.
  std::optional<double> train_loss{};           // Mean over the samples of this epoch so far.
  std::optional<double> test_loss{};
  std::optional<double> test_accuracy{};
};

// One line, its end included. Fields without value are left out; a number that is not finite is null.
std::string to_json_line(const MetricsRecord& record);

// Not thread-safe. Throws UserError when the system refuses to write.
class MetricsLog {
 public:
  // Cuts what the file has beyond `bytes`: records of steps that will be done again.
  MetricsLog(const std::string& path, std::uint64_t bytes) : file_(path, bytes, "metrics") {}

  void append(const MetricsRecord& record) { file_.append(to_json_line(record)); }
  void sync() { file_.sync(); }
  std::uint64_t size() const { return file_.size(); }

 private:
  AppendFile file_;
};

}  // namespace starling::run
