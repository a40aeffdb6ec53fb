// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A Trainer's state to and from checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "starling/base/error.h"
#include "starling/run/other_workers.h"
#include "starling/run/trainer.h"
#include "starling/run/trainer_spread.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {

void Trainer::restore(const Checkpoint& given) {
  const bool other_workers = given.state.workers.size() != workers_.size();
  const RunConfig before = parse_run_config(given.config, given.path);
  const auto refuse = [&](const std::string& reason) {
    throw UserError(fmt::format("the checkpoint '{}' does not belong to this run: {}", given.path, reason));
  };
  if (const auto difference = conflict(before, config_)) refuse(*difference);
  const Checkpoint changed = other_workers ? with_other_workers(given, before, config_, registry_) : Checkpoint{};
  const Checkpoint& checkpoint = other_workers ? changed : given;
  const std::string difference = params::difference(whole_->layout(), checkpoint.weights.layout);
  if (!difference.empty()) refuse(fmt::format("it is of another model ({}): {}", checkpoint.model, difference));
  if (checkpoint.data != data_text_) refuse(fmt::format("its data were others ({}; now {})", checkpoint.data, data_text_));

  state_ = checkpoint.state;
  model_ = checkpoint.weights.values;
  for (const auto& worker : workers_) {
    if (worker->is_here() && !description_.trains_parts) std::copy(model_.begin(), model_.end(), worker->replica->weights().begin());
  }
  const std::span<const float> values(checkpoint.vectors.values);
  for (const params::Slice& slice : checkpoint.vectors.layout.slices()) {
    const auto [rank, name] = split_rank(slice.name, roles_.ranks());
    if (rank < 0) refuse(fmt::format("it has a vector '{}', which belongs to no rank", slice.name));
    if (!is_here(rank)) continue;  // Its own process takes it.
    const std::span<const float> part = params::Layout::part(values, slice);
    if (name != "weights") {
      saved_[static_cast<std::size_t>(rank)].vectors[name].assign(part.begin(), part.end());
      continue;
    }
    const std::span<float> weights =
        roles_.is_worker(rank) ? workers_[static_cast<std::size_t>(rank)]->replica->weights() : std::span<float>();
    if (part.size() != weights.size()) {
      refuse(fmt::format("its '{}' has {} floats instead of {}", slice.name, part.size(), weights.size()));
    }
    std::copy(part.begin(), part.end(), weights.begin());
  }
  for (const auto& [full_name, number] : state_.numbers) {
    const auto [rank, name] = split_rank(full_name, roles_.ranks());
    if (rank < 0) refuse(fmt::format("it has a number '{}', which belongs to no rank", full_name));
    if (is_here(rank)) saved_[static_cast<std::size_t>(rank)].numbers[name] = number;
  }
  has_saved_ = !state_.ledger.empty();
  if (has_saved_ && other_workers) ledger_->carry(state_.ledger);
  if (has_saved_ && !other_workers) ledger_->restore(state_.ledger);
  std::tie(recorded_applications_, recorded_staleness_) = applications_and_staleness();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i]->state = state_.workers[i];
    if (workers_[i]->batches) workers_[i]->batches->seek(state_.workers[i].progress, state_.workers[i].order);
    const data::BatchOrder::Position& progress = workers_[i]->progress();
    workers_[i]->loss_epoch = progress.sample == 0 ? progress.epoch : progress.epoch + 1;
    publish(*workers_[i]);
  }
  for (int rank = 0; rank < roles_.ranks(); ++rank) bytes_sent_[static_cast<std::size_t>(rank)] = ledger_->account(rank).bytes_sent();
  if (stream_) stream_->seek(state_.workers[0].order);
  if (spread_) spread_->stream = state_.workers[0].order;
  earlier_seconds_ = state_.seconds;
  earlier_total_seconds_ = state_.total_seconds;
  earlier_epochs_ = epochs_done();
  checkpointed_step_ = state_.steps;
  result_.checkpoint = checkpoint.path;
  if (store_) store_->make_latest(checkpoint.name);
}

// Everything a checkpoint holds besides vectors.
void Trainer::gather_state() {
  state_.position = furthest();
  state_.samples = state_.skipped = state_.steps = 0;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    state_.workers[i] = workers_[i]->state;
    state_.steps += workers_[i]->state.progress.number;
    state_.samples += workers_[i]->state.samples;
    state_.skipped += workers_[i]->state.skipped;
  }
  state_.steps += static_cast<std::uint64_t>(state_.steps_before);  // Which may be negative.
  state_.numbers.clear();
  for (std::size_t rank = 0; rank < saved_.size(); ++rank) {
    for (const auto& [name, number] : saved_[rank].numbers) state_.numbers[fmt::format("rank{}/{}", rank, name)] = number;
  }
  // Where the others' books were not asked for, nobody reads them.
  if (has_saved_ && (!spread_ || closes_now_)) state_.ledger = ledger_->save();
}

// Where the model is not enough to know the weights of this worker.
std::span<const float> Trainer::weights_apart(const Worker& worker) const {
  if (!worker.is_here()) return worker.told_weights;
  const std::span<const float> weights = worker.replica->weights();
  const bool same = !description_.trains_parts && std::memcmp(weights.data(), model_.data(), weights.size_bytes()) == 0;
  return same ? std::span<const float>() : weights;
}

// Planned is what a run writes that is never interrupted.
void Trainer::write_checkpoint(Time now, bool planned) {
  if (!store_ || given_up_ || checkpointed_step_ == state_.steps) return;
  metrics_->sync();
  state_.metrics_bytes = metrics_->size();
  state_.total_seconds = earlier_total_seconds_ + to_seconds(now - begin_);
  CheckpointContents contents{.state = state_,
                              .config = config_text_,
                              .model = whole_->describe(),
                              .data = data_text_,
                              .layout = whole_->layout(),
                              .weights = model_,
                              .interrupted = !planned,
                              .progress = [this] { ++activity_; }};
  for (std::size_t rank = 0; rank < saved_.size(); ++rank) {
    if (rank < workers_.size()) {
      const std::span<const float> weights = weights_apart(*workers_[rank]);
      if (!weights.empty()) contents.vectors.push_back({fmt::format("rank{}/weights", rank), weights});
    }
    for (const auto& [name, values] : saved_[rank].vectors) contents.vectors.push_back({fmt::format("rank{}/{}", rank, name), values});
  }
  const std::string name = store_->write(contents);
  checkpointed_step_ = state_.steps;
  result_.checkpoint = fmt::format("{}/{}", options_.directory->checkpoints_path(), name);
  if (options_.observer != nullptr) options_.observer->checkpoint_written(result_.checkpoint);
}

void Trainer::save(strategy::Strategy& strategy, Saved& saved) {
  params::StateList list;
  strategy.list_state(list);
  saved = {};
  for (const params::StateList::Vector& vector : list.vectors())
    saved.vectors[vector.name].assign(vector.values.begin(), vector.values.end());
  for (const params::StateList::Number& number : list.numbers()) saved.numbers[number.name] = *number.value;
}

void Trainer::load(strategy::Strategy& strategy, const Saved& saved) const {
  params::StateList list;
  strategy.list_state(list);
  const auto refuse = [&](const std::string& reason) {
    throw UserError(fmt::format("the checkpoint '{}' does not belong to this run: {}", result_.checkpoint, reason));
  };
  if (list.vectors().size() != saved.vectors.size() || list.numbers().size() != saved.numbers.size()) {
    refuse(fmt::format("it has {} vectors and {} numbers of state for a rank, but there should be {} and {}", saved.vectors.size(),
                       saved.numbers.size(), list.vectors().size(), list.numbers().size()));
  }
  for (const params::StateList::Vector& vector : list.vectors()) {
    const auto found = saved.vectors.find(vector.name);
    if (found == saved.vectors.end()) refuse(fmt::format("it has no vector '{}'", vector.name));
    if (found->second.size() != vector.values.size()) {
      refuse(fmt::format("its '{}' has {} floats instead of {}", vector.name, found->second.size(), vector.values.size()));
    }
    std::copy(found->second.begin(), found->second.end(), vector.values.begin());
  }
  for (const params::StateList::Number& number : list.numbers()) {
    const auto found = saved.numbers.find(number.name);
    if (found == saved.numbers.end()) refuse(fmt::format("it has no number '{}'", number.name));
    *number.value = found->second;
  }
}

}  // namespace starling::run
