// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a Trainer keeps of each of its ranks. Only for its own sources.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "starling/run/trainer.h"

namespace starling::run {

// What others see of a worker while it runs.
struct Trainer::Counters {
  std::atomic<std::uint64_t> steps{0};
  std::atomic<std::uint64_t> samples{0};
  std::atomic<std::uint64_t> skipped{0};
  std::atomic<double> epoch{0};
  std::atomic<double> epoch_loss_sum{0};
  std::atomic<std::uint64_t> epoch_samples{0};
};

struct Trainer::Worker {
  // One that lives in another process. Of its vectors there is what it has told.
  Worker() = default;
  Worker(compute::Replica& its_replica, compute::Replica& its_viewer, data::WorkerBatches its_batches)
      : replica(&its_replica), viewer(&its_viewer), batches(std::move(its_batches)), model(viewer->layout().parameter_count()) {}

  bool is_here() const { return replica != nullptr; }
  std::span<float> parameters() { return replica->weights().first(replica->layout().parameter_count()); }
  std::span<const float> buffers() { return is_here() ? own_buffers() : std::span<float>(told_buffers); }
  std::span<float> own_buffers() { return replica->weights().subspan(replica->layout().parameter_count()); }

  // The work of a sample, where that of the whole model is 1.
  double work_per_sample() const { return viewer == replica ? 1 : replica->operations_per_sample() / viewer->operations_per_sample(); }

  // Of a worker that lives elsewhere, as of the last meeting.
  const data::BatchOrder::Position& progress() const { return batches ? batches->progress() : state.progress; }

  // Where the stream of batches stands, where all take from one.
  void align(const data::BatchOrder::Position& stream) {
    if (batches) batches->align(stream);
    state.progress.epoch = stream.epoch;
    state.progress.sample = stream.sample;
    state.order = stream;
  }

  // Runs `look` while the viewer has these weights.
  template <class Look>
  void look_at(std::span<const float> weights, Look look) {
    if (viewer != replica) {
      std::copy(weights.begin(), weights.end(), viewer->weights().begin());
      look();
      return;
    }
    weights_aside.assign(replica->weights().begin(), replica->weights().end());
    std::copy(weights.begin(), weights.end(), replica->weights().begin());
    look();
    std::copy(weights_aside.begin(), weights_aside.end(), replica->weights().begin());
  }

  compute::Replica* replica = nullptr;
  compute::Replica* viewer = nullptr;  // Of the whole model: the replica itself, unless that is a part.
  std::optional<data::WorkerBatches> batches{};
  WorkerState state{};
  std::vector<float> model{};           // What its strategy says the result is.
  std::vector<float> buffers_before{};  // The batch, where it may have to be skipped.
  std::vector<float> weights_aside{};   // While the replica evaluates the model.
  compute::Evaluation evaluation{};     // Of its part of the test set.
  compute::Evaluation validation{};     // Of its own model, where the best of them is to be chosen.
  strategy::Assignment assignment{};    // Its batch, where batches come from a stream.
  std::uint64_t loss_epoch = 0;         // The epoch, counted from 1, that the sums of the loss are of.
  double last_lr = 0;
  std::size_t last_batch = 0;
  std::uint64_t bytes_before = 0;  // The stretch began.
  bool lost = false;               // As of the last meeting.
  std::vector<float> told_buffers{};
  std::vector<float> told_weights{};  // For a checkpoint; none where they are the model's.
  Counters counters{};
};

// A batch to compute on.
struct Trainer::Task {
  data::WorkerBatches::Draw draw{};
  std::uint64_t epoch = 0;   // Epochs completed before it.
  double position = 0;       // The same as a fraction.
  std::uint64_t number = 1;  // Of this worker's steps.
};

// A rank that fails because another failed says who was the first.
Status name_the_lost(Status status, const fabric::Endpoint& endpoint);

struct Trainer::Saved {
  std::map<std::string, std::vector<float>> vectors;
  std::map<std::string, std::uint64_t> numbers;
};

}  // namespace starling::run
