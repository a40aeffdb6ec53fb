// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a worker of a Trainer does in a stretch: batch, gradient, exchange, and what is to be seen to between two steps.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "starling/run/trainer.h"
#include "starling/run/trainer_spread.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;
using fabric::Endpoint;

constexpr Duration kReportInterval = 250ms;

// Skipped batches in a row after which there is no hope.
constexpr std::uint64_t kMostSkipped = 100;

}  // namespace

Result<bool> Trainer::train(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker) {
  for (;;) {
    const std::uint64_t epoch = worker.batches->progress().epoch;
    const Duration waited = endpoint.waited();
    Result<std::optional<Task>> task = next_task(endpoint, strategy, worker);
    if (!task) return task.failure();
    ledger_->account(endpoint.rank()).time().waiting += endpoint.waited() - waited;
    if (given_up_) return false;
    if (!*task) return true;
    Result<bool> going = step(endpoint, strategy, worker, **task);
    if (!going) return going.failure();
    if (!*going) return false;
    STARLING_TRY(take_snapshot_if_due(endpoint, strategy, worker));
    const data::BatchOrder::Position& position = worker.batches->progress();
    STARLING_TRY(look_around(endpoint, worker));
    if (given_up_) return false;
    if (position.epoch == epoch) continue;
    if (stretch_ends_at(position.epoch)) {
      if (!from_stream_) return true;  // A stream says itself when it pauses.
    } else if (collective::is_first_alive(endpoint)) {
      STARLING_TRY(end_epoch_on_the_side(endpoint, strategy, worker));
    }
  }
}

Result<std::optional<Trainer::Task>> Trainer::next_task(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker) {
  const data::BatchOrder::Position& progress = worker.batches->progress();
  Task task{.number = progress.number + 1};
  if (!from_stream_) {
    if (is_over(progress)) return std::optional<Task>{};
    Result<bool> may = may_begin(endpoint, worker, task.number);
    if (!may) return may.failure();
    if (!*may) return std::optional<Task>{};
    task.epoch = progress.epoch;
    task.position = worker.batches->epoch();
    task.draw = worker.batches->next(schedule_.batch(task.position), strategy.takes_part(task.number));
    return std::optional<Task>{task};
  }
  Result<std::optional<strategy::Assignment>> assignment = next_assignment(endpoint, strategy, worker);
  if (!assignment) return assignment.failure();
  if (!*assignment) return std::optional<Task>{};
  worker.assignment = std::move(**assignment);
  worker.batches->took({.epoch = worker.assignment.epoch, .sample = worker.assignment.sample, .number = worker.assignment.number});
  task.draw.indices = worker.assignment.indices;
  // A batch never goes beyond the end of an epoch.
  const std::uint64_t all = samples_in_epoch_;
  const bool last = worker.assignment.sample == 0;
  task.epoch = worker.assignment.epoch - (last ? 1 : 0);
  const std::uint64_t before = (last ? all : worker.assignment.sample) - task.draw.indices.size();
  task.position = static_cast<double>(task.epoch) + static_cast<double>(before) / static_cast<double>(all);
  return std::optional<Task>{task};
}

Result<std::optional<strategy::Assignment>> Trainer::next_assignment(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy,
                                                                     Worker& worker) {
  if (description_.needs_generator) return strategy.next_batch();
  if (spread_) return next_of_all(endpoint, worker);
  return stream_->next();
}

// What is said beside the strategy is no part of what it sends.
Result<bool> Trainer::may_begin(fabric::MeteredEndpoint& endpoint, Worker& worker, std::uint64_t step) {
  if (!spread_) return halting_->may_begin(step);
  const std::uint64_t before = endpoint.bytes_moved();
  Result<bool> may = halting_->may_begin(step);
  worker.bytes_before += endpoint.bytes_moved() - before;
  return may;
}

void Trainer::open_stream() {
  if (!stream_) return;
  stretch_begins_at_ = stream_->position().number;
  stream_->open();
}

// Asked by whoever takes a batch from the stream, one at a time.
bool Trainer::stream_may_go_on(const data::BatchOrder::Position& position) {
  // A batch whose number was dealt is to be computed on; workers in other processes halt before they take a number.
  const bool numbered = spread_ && !description_.needs_generator;
  if (!numbered) {
    if (heard_given_up()) return false;
    Result<bool> may = halting_->may_begin(position.number + 1);
    if (!may || !*may) return false;
  }
  return stretch_goes_on_at(position);
}

bool Trainer::stretch_goes_on_at(const data::BatchOrder::Position& position) const {
  if (is_over(position)) return false;
  return position.sample != 0 || position.number == stretch_begins_at_ || !stretch_ends_at(position.epoch);
}

// One gradient and its exchange. False if the run is not to go on.
Result<bool> Trainer::step(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker, const Task& task) {
  ledger::Account& account = ledger_->account(endpoint.rank());
  compute::Replica& replica = *worker.replica;
  const std::uint64_t number = task.number;
  worker.last_lr = schedule_.lr(task.position);
  worker.last_batch = schedule_.batch(task.position);
  if (worker.loss_epoch != task.epoch + 1) {
    worker.loss_epoch = task.epoch + 1;
    worker.state.epoch_loss_sum = 0;
    worker.state.epoch_samples = 0;
  }
  const data::Batch batch{.samples = &dataset_.train, .indices = task.draw.indices, .number = number};
  const bool recorded =
      metrics_ && config_.metrics_every > 0 && number % config_.metrics_every == 0 && collective::is_first_alive(endpoint);

  const Time waits_from = endpoint.now();
  const Duration waited_at_first = endpoint.waited();
  STARLING_TRY(strategy.prepare(worker.parameters()));
  const Duration prepared_waiting = endpoint.waited() - waited_at_first;
  account.time().waiting += prepared_waiting;
  account.time().communication += endpoint.now() - waits_from - prepared_waiting;

  const Time begin = endpoint.now();
  std::copy_n(worker.own_buffers().begin(), worker.buffers_before.size(), worker.buffers_before.begin());
  double loss = 0;
  std::optional<double> gradient_norm;
  bool usable = true;
  if (batch.size() > 0) {
    endpoint.compute(static_cast<double>(batch.size()) * worker.work_per_sample(), [&] {
      loss = replica.compute_gradient(batch);
      usable = std::isfinite(loss) && all_finite(replica.gradient());
      if (usable && recorded) gradient_norm = norm(replica.gradient());
    });
    account.count_step();
  }
  endpoint.pass("step");
  worker.state.progress = worker.batches->progress();
  worker.state.order = worker.batches->order();
  if (!usable && !skip(worker, std::isfinite(loss) ? "the gradient is not finite"
                                                   : fmt::format("the loss is {}", std::isnan(loss) ? std::abs(loss) : loss))) {
    return false;
  }
  if (!usable || batch.size() == 0) std::fill(replica.gradient().begin(), replica.gradient().end(), 0.0F);

  const Time computed = endpoint.now();
  const Duration waited_before = endpoint.waited();
  STARLING_TRY(strategy.exchange({.weights = worker.parameters(),
                                  .gradient = replica.gradient(),
                                  .number = number,
                                  .epoch = task.position,
                                  .lr = worker.last_lr,
                                  .first_stage = schedule_.first_stage(task.position),
                                  .samples = batch.size(),
                                  .share = task.draw.share,
                                  .finite = usable}));
  const Duration waited = endpoint.waited() - waited_before;
  account.time().compute += computed - begin;
  account.time().waiting += waited;
  account.time().communication += endpoint.now() - computed - waited;

  if (usable && batch.size() > 0) {
    worker.state.skipped_in_a_row = 0;
    worker.state.samples += batch.size();
    worker.state.epoch_samples += batch.size();
    worker.state.epoch_loss_sum += loss * static_cast<double>(batch.size());
  }
  publish(worker);
  activity_.fetch_add(1, std::memory_order_relaxed);
  if (exchanges_) {
    bytes_sent_[static_cast<std::size_t>(endpoint.rank())].store(account.bytes_sent() + endpoint.bytes_moved() - worker.bytes_before,
                                                                 std::memory_order_relaxed);
  }
  if (recorded && usable && batch.size() > 0) {
    MetricsRecord record = make_record("step", endpoint, worker);
    record.loss = loss;
    record.gradient_norm = gradient_norm;
    const std::lock_guard lock(mutex_);
    write(record);
  }
  return true;
}

// After a batch that gave no usable gradient. False if the run is not to go on.
bool Trainer::skip(Worker& worker, const std::string& what) {
  const std::uint64_t number = worker.state.progress.number;
  if (config_.on_nan == OnNan::stop) {
    diverge(number, what);
    return false;
  }
  ++worker.state.skipped;
  ++worker.state.skipped_in_a_row;
  std::copy(worker.buffers_before.begin(), worker.buffers_before.end(), worker.own_buffers().begin());
  const bool epoch_lost = workers_.size() == 1 && worker.state.progress.sample == 0 && worker.state.epoch_samples == 0;
  if (worker.state.skipped_in_a_row < kMostSkipped && !epoch_lost) return true;
  diverge(number, fmt::format("{}, and {} batches in a row were skipped", what, worker.state.skipped_in_a_row));
  return false;
}

// After every step: is somebody waiting for the end, is a checkpoint due, has nobody heard from the run for a while?
Status Trainer::look_around(fabric::MeteredEndpoint& endpoint, Worker& worker) {
  const Time now = endpoint.now();
  const std::uint64_t bytes_before = spread_ ? endpoint.bytes_moved() : 0;
  std::unique_lock lock(mutex_);
  last_seen_ = std::max(last_seen_, now);
  if (!interrupted_ && options_.stop && options_.stop()) {
    interrupted_ = true;
    // Halting workers that do not wait for each other changes their course. In the simulator a run must not depend on when it was
    // interrupted, so it goes back to the last checkpoint instead.
    if (config_.fabric.name == "sim" && !description_.lockstep) {
      given_up_ = true;
    } else {
      halting_->halt();
    }
  }
  const bool pause_is_due = config_.checkpoint_interval > Duration::zero() && now - last_checkpoint_ >= config_.checkpoint_interval;
  if (pause_is_due && is_here(0)) halting_->halt();
  if (options_.observer != nullptr && now - last_report_ >= kReportInterval) {
    last_report_ = now;
    options_.observer->progressed(progress(now));
  }
  if (!spread_) return {};
  lock.unlock();
  STARLING_TRY(look_at_others(endpoint));
  worker.bytes_before += endpoint.bytes_moved() - bytes_before;
  return {};
}

// The model as far as the first worker knows it.
Status Trainer::take_snapshot_if_due(Endpoint& endpoint, strategy::Strategy& strategy, Worker& worker) {
  if (!snapshots_ || !collective::is_first_alive(endpoint)) return {};
  const std::uint64_t due = snapshots_due(worker.batches->epoch(), config_.snapshots);
  if (due < next_snapshot_) return {};
  STARLING_TRY(strategy.peek(worker.parameters(), worker.model));
  Snapshot snapshot{.step = worker.batches->progress().number, .epoch = worker.batches->epoch(), .weights = worker.model};
  snapshot.weights.insert(snapshot.weights.end(), worker.buffers().begin(), worker.buffers().end());
  {
    const std::lock_guard lock(mutex_);
    snapshot.samples = progress(endpoint.now()).samples;
  }
  snapshots_->write(snapshot, whole_->layout());
  next_snapshot_ = due + 1;
  return {};
}

// The end of an epoch at which nobody meets: this worker looks at the model as far as it knows it.
Status Trainer::end_epoch_on_the_side(Endpoint& endpoint, strategy::Strategy& strategy, Worker& worker) {
  const std::uint64_t epoch = worker.batches->progress().epoch;
  std::optional<compute::Evaluation> evaluation;
  if (evaluation_is_due(epoch)) {
    STARLING_TRY(strategy.peek(worker.parameters(), worker.model));
    std::vector<float> weights(worker.model.begin(), worker.model.end());
    weights.insert(weights.end(), worker.buffers().begin(), worker.buffers().end());
    endpoint.compute(0, [&] {
      worker.look_at(weights, [&] { evaluation = evaluate_part(*worker.viewer, dataset_.test, 1, 0, [&] { ++activity_; }); });
    });
  }
  const std::lock_guard lock(mutex_);
  end_epoch(endpoint, worker, evaluation);
  return {};
}

}  // namespace starling::run
