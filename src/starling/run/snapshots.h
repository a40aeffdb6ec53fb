// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Copies of the weights in the course of a run, for a look at the way it took: snapshots/step-00000123.safetensors in the run directory,
// the first of them before the first step.
//
//   std::vector<Snapshot> snapshots = read_snapshots("runs/a");
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "starling/params/layout.h"

namespace starling::run {

struct Snapshot {
  std::uint64_t step = 0;        // Of the worker that took it, like the epoch.
  double epoch = 0;              // As a fraction.
  std::uint64_t samples = 0;     // Of all workers.
  std::vector<float> weights{};  // Parameters, then buffers.
};

// How many are due at this point of a run, the first weights not counted.
std::uint64_t snapshots_due(double epoch, std::uint64_t per_epoch);

// Not thread-safe. Throws UserError when the system refuses.
class SnapshotStore {
 public:
  explicit SnapshotStore(const std::string& run_path);

  void write(const Snapshot& snapshot, const params::Layout& layout) const;

  // Removes those of later steps, which will be done again.
  void drop_after(std::uint64_t step) const;

 private:
  std::string folder_;
};

// All of a run, by step. Throws UserError, saying how they are made, if there are none, and if one cannot be read.
std::vector<Snapshot> read_snapshots(const std::string& run_path);

}  // namespace starling::run
