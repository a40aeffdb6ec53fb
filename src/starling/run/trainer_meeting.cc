// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a Trainer do where they meet: look at the model, write a checkpoint, begin anew.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "starling/run/trainer.h"
#include "starling/run/trainer_spread.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {

using fabric::Endpoint;

Status Trainer::meet(collective::Meeting& meeting, Endpoint& endpoint, Worker* worker) {
  const Time arrived = endpoint.now();
  const fabric::Rank rank = endpoint.rank();
  STARLING_TRY(meeting.hold([&] { all_have_arrived(endpoint); }, spread_ ? arrival_parcels(rank) : collective::Parcels{}));
  if (given_up_) return {};
  if (worker != nullptr) ledger_->account(rank).time().waiting += endpoint.now() - arrived;
  if (worker != nullptr && evaluates_now_) evaluate_own_part(endpoint, *worker);
  return meeting.hold([&] { conclude(endpoint); }, spread_ ? conclusion_parcels(rank) : collective::Parcels{});
}

// The test set is cut into as many parts as there are workers left.
void Trainer::evaluate_own_part(Endpoint& endpoint, Worker& worker) {
  const auto there = [](const auto& one) { return !one->lost; };
  const auto index = std::count_if(workers_.begin(), workers_.begin() + endpoint.rank(), there);
  const auto parts = std::count_if(workers_.begin(), workers_.end(), there);
  // Zero units: evaluating is looking at the run, which in the simulator takes no time.
  endpoint.compute(0, [&] {
    worker.look_at(model_, [&] {
      worker.evaluation = evaluate_part(
          *worker.viewer, dataset_.test, static_cast<int>(parts), static_cast<int>(index), [&] { ++activity_; }, predictions_);
    });
  });
}

// By the samples that nobody trains on.
void Trainer::validate_own_model(Endpoint& endpoint, Worker& worker) {
  std::vector<float> weights(worker.model.begin(), worker.model.end());
  weights.insert(weights.end(), worker.buffers().begin(), worker.buffers().end());
  endpoint.compute(0, [&] {
    worker.look_at(weights, [&] { worker.validation = evaluate_part(*worker.viewer, validation_, 1, 0, [&] { ++activity_; }); });
  });
}

// At the meeting: everything is drained, and nobody computes.
void Trainer::all_have_arrived(Endpoint& endpoint) {
  if (from_stream_) {
    const data::BatchOrder::Position stream = spread_ ? stream_of_all() : stream_->position();
    for (const auto& worker : workers_) {
      worker->align(stream);
      publish(*worker);
    }
  }
  std::vector<int> lost;
  bool at_epoch_end = true;
  std::optional<std::uint64_t> epoch;
  Worker* first = nullptr;
  for (int rank = 0; rank < roles_.workers; ++rank) {
    Worker& worker = *workers_[static_cast<std::size_t>(rank)];
    worker.lost = endpoint.peer(rank) != fabric::PeerState::alive;
    worker.evaluation = {};
    if (worker.lost) {
      lost.push_back(rank);
      continue;
    }
    if (first == nullptr) first = &worker;
    const data::BatchOrder::Position& position = worker.progress();
    at_epoch_end = at_epoch_end && position.sample == 0 && position.epoch == epoch.value_or(position.epoch);
    epoch = position.epoch;
  }
  concluded_ = false;
  if (!lost.empty()) ledger_->write_off(lost);
  state_.seconds = seconds_at(endpoint.now());
  clock_ = endpoint.now();
  epoch_ends_now_ = at_epoch_end && epoch != recorded_epoch_;
  evaluates_now_ = epoch_ends_now_ && evaluation_is_due(*epoch);
  const bool due = epoch_ends_now_ && checkpoint_is_due(*epoch);
  // A meeting in the middle of an epoch is there for the checkpoint.
  writes_now_ = is_to_end() || !epoch_ends_now_ || due;
  closes_now_ = is_to_end() || (writes_now_ && store_);
  if (evaluates_now_ && dataset_.test.has_labels()) predictions_.resize(dataset_.test.count);
  if (first != nullptr) assemble_model(*first);
  if (!all_finite(model_)) diverge(furthest().number, "a weight is not finite");
}

// At the meeting: whether it is the last.
bool Trainer::is_to_end() const {
  return interrupted_ ||
         std::all_of(workers_.begin(), workers_.end(), [&](const auto& worker) { return worker->lost || is_over(worker->progress()); });
}

// The parameters are what the strategy says; buffers, which no strategy moves, are the mean over the workers, or those of the worker whose
// model is chosen.
void Trainer::assemble_model(Worker& first) {
  Worker* chosen = choose_parameters(first);
  const std::span<float> buffers = std::span(model_).subspan(first.model.size());
  if (chosen != nullptr) {
    std::copy(chosen->buffers().begin(), chosen->buffers().end(), buffers.begin());
    return;
  }
  std::vector<double> sums(buffers.size());
  double count = 0;
  for (const auto& worker : workers_) {
    if (worker->lost) continue;
    count += 1;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(worker->buffers()[i]);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) buffers[i] = static_cast<float>(sums[i] / count);
}

// What the strategy says the parameters are; or, where every worker has a model of its own, what the option `result` makes of them. Returns
// whose model it is, if it is one of theirs.
Trainer::Worker* Trainer::choose_parameters(Worker& first) {
  const std::string policy = description_.own_models ? settings_.choice("result") : "";
  Worker* chosen = &first;
  std::vector<Worker*> there;
  for (const auto& worker : workers_) {
    if (!worker->lost) there.push_back(worker.get());
  }
  const auto validation_loss = [](const Worker& worker) {
    return std::isfinite(worker.validation.loss_sum) ? worker.validation.loss_sum : std::numeric_limits<double>::infinity();
  };
  if (policy == "best") {
    for (Worker* worker : there) {
      if (validation_loss(*worker) < validation_loss(*chosen)) chosen = worker;
    }
  }
  std::copy(chosen->model.begin(), chosen->model.end(), model_.begin());
  if (policy == "best" || policy == "rank0") return chosen;
  if (policy != "average" || there.size() < 2) return nullptr;
  for (std::size_t i = 0; i < first.model.size(); ++i) {
    double sum = 0;
    for (const Worker* worker : there) sum += static_cast<double>(worker->model[i]);
    model_[i] = static_cast<float>(sum / static_cast<double>(there.size()));
  }
  return nullptr;
}

void Trainer::conclude(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  if (concluded_) return;  // By a leader that was lost before all had heard of it.
  concluded_ = true;
  Worker* first = nullptr;
  compute::Evaluation evaluation;
  over_ = true;
  for (const auto& worker : workers_) {
    if (worker->lost) continue;
    if (first == nullptr) first = worker.get();
    evaluation += worker->evaluation;
    over_ = over_ && is_over(worker->progress());
  }
  if (first != nullptr && epoch_ends_now_) {
    end_epoch(endpoint, *first, evaluates_now_ ? std::optional(evaluation) : std::nullopt);
    // In place of what the first worker knew before everything was drained.
    if (snapshots_) {
      snapshots_->write({.step = first->batches->progress().number,
                         .epoch = first->batches->epoch(),
                         .samples = progress(endpoint.now()).samples,
                         .weights = model_},
                        whole_->layout());
    }
  }
  if (interrupted_ && !over_) {
    result_.ending = Ending::interrupted;
    over_ = true;
  }
  // A run that is resumed here begins with these.
  std::tie(recorded_applications_, recorded_staleness_) = applications_and_staleness();
  ++state_.stretches;
  has_saved_ = true;
  gather_state();
  state_.clock = endpoint.now();
  const bool due = epoch_ends_now_ && checkpoint_is_due(*recorded_epoch_);
  if (writes_now_) write_checkpoint(endpoint.now(), due || result_.ending != Ending::interrupted);
  ++activity_;
  if (spread_) {
    forget_what_was_told();
    deal_numbers_anew();
  } else {
    halting_->open();
    open_stream();
  }
  clock_ = last_seen_ = endpoint.now();
}

Status Trainer::begin_next_stretch(Endpoint& endpoint) {
  STARLING_TRY(endpoint.realign(state_.stretches));
  if (spread_) {
    halting_->open();
    open_stream();
    // Those that are still unread say less than what everybody has brought to the meeting.
    spread_->signals->take_reports([](fabric::Rank, std::span<const std::byte>) {});
  }
  if (!collective::is_first_alive(endpoint)) return {};
  const std::lock_guard lock(mutex_);
  clock_ = endpoint.now();
  if (writes_now_) last_checkpoint_ = clock_;
  return {};
}

}  // namespace starling::run
