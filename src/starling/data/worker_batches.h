// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The batches of one worker among several. All workers take the same number of steps in an epoch, whatever their parts of the data look
// like, so that those who wait for each other meet.
//
//   WorkerBatches batches(parts, "shared", worker, seed);
//   while (batches.progress().epoch < 3) {
//     WorkerBatches::Draw draw = batches.next(64);
//     ...
//   }
//
// With the partition `shared` an epoch is one pass of all workers together over the whole set, in the order in which one worker alone would
// see it: a step deals the next workers × size samples to the workers. Otherwise it is so many steps as the mean part has batches; a worker
// goes through its own part in an order of its own, over and over.
//
// With the partition `queue` batches come from elsewhere, and this only keeps where the worker stands: its steps differ from others'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "starling/data/batches.h"

namespace starling::data {

// Not thread-safe. Where it stands is two positions, so that a checkpoint holds it.
class WorkerBatches {
 public:
  // `parts` are the samples of all workers (see partition.h).
  WorkerBatches(const std::vector<std::vector<std::uint32_t>>& parts, const std::string& partition, int worker, std::uint64_t seed);

  struct Draw {
    std::span<const std::uint32_t> indices{};  // Valid until the next call. With `shared`, perhaps none at the end of an epoch.
    double share = 1;                          // Samples × workers / samples of all workers in this step.
  };

  // The next batch of at most `size` samples. A worker that does not take part in the step draws nothing, but its progress is that of the
  // others.
  Draw next(std::size_t size, bool takes_part = true);

  // The partition `queue`: a batch from a stream, which stands at `after` now. Draws nothing itself.
  void took(const BatchOrder::Position& after);
  // All workers stand where the stream does.
  void align(const BatchOrder::Position& stream);

  // The same for all workers that have taken equally many steps, but with `queue`.
  const BatchOrder::Position& progress() const { return shared_ ? order_.position() : progress_; }
  double epoch() const;                                      // As a fraction.
  std::size_t samples_in_epoch() const { return nominal_; }  // With `shared` and `queue` of all workers, else of the mean part.
  std::size_t samples_per_epoch() const;                     // Of this worker, on average where they differ.

  // For checkpoints: together with progress(), the whole state.
  const BatchOrder::Position& order() const { return queue_ ? stream_ : order_.position(); }
  void seek(const BatchOrder::Position& progress, const BatchOrder::Position& order);

 private:
  bool shared_;
  bool queue_;
  int worker_;
  int workers_;
  BatchOrder order_;                 // Of the whole set with `shared`, else of this worker's part.
  std::size_t nominal_;              // Samples in an epoch: of all workers with `shared`, else of the mean part.
  BatchOrder::Position progress_{};  // Unused with `shared`.
  BatchOrder::Position stream_{};    // With `queue`, when all last met.
};

}  // namespace starling::data
