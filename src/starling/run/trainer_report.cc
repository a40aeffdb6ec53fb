// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a Trainer tells of the course of a run: progress, metrics, the ends of epochs.
#include <algorithm>
#include <cmath>

#include "starling/run/trainer.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {
namespace {

std::optional<double> finite(double value) { return std::isfinite(value) ? std::optional<double>(value) : std::nullopt; }

}  // namespace

double Trainer::fraction(const data::BatchOrder::Position& position) const {
  return static_cast<double>(position.epoch) + static_cast<double>(position.sample) / static_cast<double>(samples_in_epoch_);
}

void Trainer::publish(Worker& worker) const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Counters& counters = worker.counters;
  counters.steps.store(worker.progress().number, kRelaxed);
  counters.samples.store(worker.state.samples, kRelaxed);
  counters.skipped.store(worker.state.skipped, kRelaxed);
  counters.epoch.store(fraction(worker.progress()), kRelaxed);
  counters.epoch_loss_sum.store(worker.state.epoch_loss_sum, kRelaxed);
  counters.epoch_samples.store(worker.state.epoch_samples, kRelaxed);
}

// With the mutex held.
void Trainer::end_epoch(fabric::Endpoint& endpoint, Worker& worker, const std::optional<compute::Evaluation>& evaluation) {
  recorded_epoch_ = worker.batches->progress().epoch;
  state_.train_loss = running_loss();
  if (evaluation) {
    const auto count = static_cast<double>(evaluation->samples);
    state_.test_loss = finite(evaluation->loss_sum / count);
    if (dataset_.test.has_labels()) {
      state_.test_accuracy = static_cast<double>(evaluation->correct) / count;
      state_.best_test_accuracy = std::max(state_.best_test_accuracy.value_or(0), *state_.test_accuracy);
    }
  }
  if (metrics_) {
    MetricsRecord record = make_record("epoch", endpoint, worker);
    if (evaluation) record.test_loss = state_.test_loss;
    if (evaluation) record.test_accuracy = state_.test_accuracy;
    write(record);
  }
  if (options_.observer != nullptr) options_.observer->epoch_ended(progress(endpoint.now()));
}

// With the mutex held.
void Trainer::write(const MetricsRecord& record) {
  metrics_->append(record);
  if (options_.observer != nullptr) options_.observer->recorded(record);
}

std::pair<std::uint64_t, std::uint64_t> Trainer::applications_and_staleness() {
  const ledger::Histogram& earlier = ledger_->carried().version_staleness;
  std::uint64_t applications = earlier.count();
  auto staleness = static_cast<std::uint64_t>(std::llround(earlier.mean() * static_cast<double>(earlier.count())));
  for (int rank = 0; rank < roles_.ranks(); ++rank) {
    applications += ledger_->account(rank).live_applications();
    staleness += ledger_->account(rank).live_staleness();
  }
  return {applications, staleness};
}

void Trainer::add_exchanges(const ledger::Account& own, MetricsRecord& record) {
  const auto [applications, staleness] = applications_and_staleness();
  std::uint64_t bytes = ledger_->carried().bytes_sent;
  for (const std::atomic<std::uint64_t>& sent : bytes_sent_) bytes += sent.load(std::memory_order_relaxed);
  record.applications = applications;
  record.bytes_sent = bytes;
  record.skew = own.skew().mean();
  if (applications > recorded_applications_) {
    record.staleness = static_cast<double>(staleness - recorded_staleness_) / static_cast<double>(applications - recorded_applications_);
  }
  recorded_applications_ = applications;
  recorded_staleness_ = staleness;
}

MetricsRecord Trainer::make_record(const char* kind, fabric::Endpoint& endpoint, Worker& worker) {
  const Progress now = progress(endpoint.now());
  MetricsRecord record;
  record.kind = kind;
  record.step = worker.batches->progress().number;
  record.epoch = worker.batches->epoch();
  record.samples = now.samples;
  record.seconds = seconds_at(endpoint.now());
  record.samples_per_second = now.samples_per_second;
  record.lr = worker.last_lr;
  record.batch = worker.last_batch;
  record.train_loss = now.train_loss;
  record.weight_norm = finite(norm(worker.parameters()));
  if (exchanges_) add_exchanges(ledger_->account(endpoint.rank()), record);
  return record;
}

double Trainer::seconds_at(Time now) const { return state_.seconds + to_seconds(now - clock_); }

double Trainer::epochs_done() const {
  double sum = 0;
  double count = 0;
  for (const auto& worker : workers_) {
    if (worker->lost) continue;
    sum += worker->counters.epoch.load(std::memory_order_relaxed);
    count += 1;
  }
  return count > 0 ? sum / count : 0;
}

Progress Trainer::progress(Time now) const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Progress result;
  for (const auto& worker : workers_) {
    result.step = std::max(result.step, worker->counters.steps.load(kRelaxed));
    result.samples += worker->counters.samples.load(kRelaxed);
    result.skipped += worker->counters.skipped.load(kRelaxed);
  }
  const double seconds = seconds_at(now) - earlier_seconds_;
  result.epoch = epochs_done();
  result.epochs = config_.epochs;
  result.samples_per_second = seconds > 0 ? (result.epoch - earlier_epochs_) * samples_per_epoch_ / seconds : 0;
  result.seconds = to_seconds(now - begin_);
  const double left = (static_cast<double>(config_.epochs) - result.epoch) * samples_per_epoch_;
  result.seconds_left = result.samples_per_second > 0 ? std::max(0.0, left / result.samples_per_second) : 0;
  result.train_loss = running_loss();
  result.test_loss = state_.test_loss;
  result.test_accuracy = state_.test_accuracy;
  return result;
}

std::optional<double> Trainer::running_loss() const {
  double sum = 0;
  std::uint64_t samples = 0;
  for (const auto& worker : workers_) {
    sum += worker->counters.epoch_loss_sum.load(std::memory_order_relaxed);
    samples += worker->counters.epoch_samples.load(std::memory_order_relaxed);
  }
  if (samples == 0) return std::nullopt;
  return sum / static_cast<double>(samples);
}

}  // namespace starling::run
