// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/sha256.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;

constexpr Duration kReportInterval = 250ms;
constexpr std::size_t kEvaluationBatch = 256;

std::vector<std::uint32_t> all_indices(std::size_t count) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// Skipped batches in a row after which there is no hope.
constexpr std::uint64_t kMostSkipped = 100;

std::optional<double> finite(double value) { return std::isfinite(value) ? std::optional<double>(value) : std::nullopt; }

}  // namespace

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t found = 0;  // Without a branch, so that the compiler makes vectors of it.
  for (const float value : values) found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent);
  return found == 0;
}

std::string fingerprint(const data::Dataset& dataset) {
  Sha256 hash;
  const auto add = [&](const auto& values) { hash.add(std::as_bytes(std::span(values))); };
  for (const data::Samples* samples : {&dataset.train, &dataset.test}) {
    add(samples->labels);
    add(samples->targets);
    add(samples->standardisation);  // Mean and deviation change with almost any input.
  }
  constexpr std::size_t kDigits = 16;
  return fmt::format("{} samples, {} to test, sum {}", dataset.train.count, dataset.test.count, hash.hex_digest().substr(0, kDigits));
}

compute::Evaluation evaluate(compute::Replica& replica, const data::Samples& samples, std::span<std::int32_t> predictions) {
  const std::vector<std::uint32_t> indices = all_indices(samples.count);
  compute::Evaluation sum;
  for (std::size_t first = 0; first < indices.size(); first += kEvaluationBatch) {
    const std::size_t count = std::min(kEvaluationBatch, indices.size() - first);
    const data::Batch batch{.samples = &samples, .indices = std::span(indices).subspan(first, count)};
    sum += replica.evaluate(batch, predictions.empty() ? predictions : predictions.subspan(first, count));
  }
  return sum;
}

Trainer::Trainer(const RunConfig& config, compute::Replica& replica, const data::Dataset& dataset, TrainerOptions options)
    : config_(config),
      replica_(replica),
      dataset_(dataset),
      options_(std::move(options)),
      schedule_(config.schedule_options()),
      order_(all_indices(dataset.train.count), config.seed(), 0),
      config_text_(to_toml(config)),
      data_text_(fingerprint(dataset)) {
  validate(config);
  if (config.on_nan == OnNan::skip) buffers_.resize(replica.layout().size() - replica.layout().parameter_count());
  if (config.schedule.two_stage) {
    auto both = std::make_unique<optim::TwoStage>(config.optimiser, replica.layout());
    two_stage_ = both.get();
    optimiser_ = std::move(both);
  } else {
    optimiser_ = optim::make_optimiser(config.optimiser, replica.layout());
  }
  if (options_.directory != nullptr) store_.emplace(options_.directory->checkpoints_path());
}

Trainer::~Trainer() = default;

void Trainer::restore(const Checkpoint& checkpoint) {
  const auto refuse = [&](const std::string& reason) {
    throw UserError(fmt::format("the checkpoint '{}' does not belong to this run: {}", checkpoint.path, reason));
  };
  if (const auto difference = conflict(parse_run_config(checkpoint.config, checkpoint.path), config_)) refuse(*difference);
  const std::string difference = params::difference(replica_.layout(), checkpoint.weights.layout);
  if (!difference.empty()) refuse(fmt::format("it is of another model ({}): {}", checkpoint.model, difference));
  if (checkpoint.data != data_text_) refuse(fmt::format("its data were others ({}; now {})", checkpoint.data, data_text_));
  const std::vector<optim::Optimiser::State> states = optimiser_->state();
  params::Layout expected;
  for (const optim::Optimiser::State& state : states) expected.add(state.name, {static_cast<std::int64_t>(state.values.size())});
  const std::string other_state = params::difference(expected, checkpoint.optimiser.layout);
  if (!other_state.empty()) refuse(fmt::format("the state of its optimizer is another one: {}", other_state));

  std::copy(checkpoint.weights.values.begin(), checkpoint.weights.values.end(), replica_.weights().begin());
  auto from = checkpoint.optimiser.values.begin();
  for (const optim::Optimiser::State& state : states) {
    std::copy_n(from, state.values.size(), state.values.begin());
    from += static_cast<std::ptrdiff_t>(state.values.size());
  }
  optimiser_->set_steps(checkpoint.state.optimiser_steps);
  order_.seek(checkpoint.state.position);
  state_ = checkpoint.state;
  earlier_seconds_ = state_.seconds;
  earlier_total_seconds_ = state_.total_seconds;
  earlier_epochs_ = epoch();
  checkpointed_step_ = state_.position.number;
  result_.checkpoint = checkpoint.path;
  if (store_) store_->make_latest(checkpoint.name);
}

Status Trainer::run(fabric::Endpoint& endpoint) {
  STARLING_CHECK(endpoint.size() == 1, std::string("a trainer is one worker"));
  clock_ = last_report_ = last_checkpoint_ = endpoint.now();
  if (options_.directory != nullptr && !metrics_) {
    metrics_.emplace(options_.directory->metrics_path(), state_.metrics_bytes);
    if (metrics_->size() < state_.metrics_bytes && options_.observer != nullptr) {
      options_.observer->noted(fmt::format("'{}' is shorter than when the checkpoint was written; records are missing from it",
                                           options_.directory->metrics_path()));
    }
  }
  // The first checkpoint, so that there is one from the start, and a folder that cannot be written is known before any work is done.
  bool going = write_checkpoint(endpoint);
  while (going && order_.epoch() < config_.epochs) {
    going = step(endpoint);
    if (!going) break;
    const bool epoch_ended = order_.position().sample == 0;
    if (epoch_ended) end_epoch(endpoint);
    const bool stop = options_.stop && options_.stop();
    const bool last = order_.epoch() >= config_.epochs;
    const bool due = config_.checkpoint_interval > Duration::zero() && endpoint.now() - last_checkpoint_ >= config_.checkpoint_interval;
    const bool by_epoch = epoch_ended && config_.checkpoint_every > 0 && order_.epoch() % config_.checkpoint_every == 0;
    if (stop || last || due || by_epoch) going = write_checkpoint(endpoint);
    if (going && stop && !last) {
      result_.ending = Ending::interrupted;
      going = false;
    }
    report(endpoint);
  }
  count_time(endpoint);
  finish();
  return {};
}

// False if the run is not to go on.
bool Trainer::step(fabric::Endpoint& endpoint) {
  const double position = epoch();
  last_lr_ = schedule_.lr(position);
  last_batch_ = schedule_.batch(position);
  if (two_stage_ != nullptr) two_stage_->set_first_stage(schedule_.first_stage(position));
  if (order_.position().sample == 0) state_.epoch_loss_sum = 0, state_.epoch_samples = 0;
  data::Batch batch{.samples = &dataset_.train, .indices = order_.next(last_batch_)};
  batch.number = order_.number();
  state_.position = order_.position();
  const bool recorded = metrics_ && config_.metrics_every > 0 && batch.number % config_.metrics_every == 0;

  const auto buffers_begin = replica_.weights().end() - static_cast<std::ptrdiff_t>(buffers_.size());
  std::copy(buffers_begin, replica_.weights().end(), buffers_.begin());
  double loss = 0;
  std::optional<double> gradient_norm;
  bool gradient_is_finite = true;
  endpoint.compute(static_cast<double>(batch.size()), [&] {
    loss = replica_.compute_gradient(batch);
    gradient_is_finite = all_finite(replica_.gradient());
    if (!std::isfinite(loss) || !gradient_is_finite) return;
    if (recorded) gradient_norm = norm(replica_.gradient());
    optimiser_->step(replica_.weights(), replica_.gradient(), last_lr_);
  });
  endpoint.pass("step");

  if (!std::isfinite(loss) || !gradient_is_finite) {
    return skip(std::isfinite(loss) ? "the gradient is not finite"
                                    : fmt::format("the loss is {}", std::isnan(loss) ? std::abs(loss) : loss));
  }
  state_.skipped_in_a_row = 0;
  state_.samples += batch.size();
  state_.epoch_samples += batch.size();
  state_.epoch_loss_sum += loss * static_cast<double>(batch.size());
  if (recorded) {
    count_time(endpoint);
    MetricsRecord record = make_record("step");
    record.loss = loss;
    record.gradient_norm = gradient_norm;
    metrics_->append(record);
  }
  return true;
}

// After a batch that gave no usable gradient. False if the run is not to go on.
bool Trainer::skip(const std::string& what) {
  if (config_.on_nan == OnNan::stop) {
    diverge(what);
    return false;
  }
  ++state_.skipped;
  ++state_.skipped_in_a_row;
  std::copy(buffers_.begin(), buffers_.end(), replica_.weights().end() - static_cast<std::ptrdiff_t>(buffers_.size()));
  const bool epoch_lost = order_.position().sample == 0 && state_.epoch_samples == 0;
  if (state_.skipped_in_a_row < kMostSkipped && !epoch_lost) return true;
  diverge(fmt::format("{}, and {} batches in a row were skipped", what, state_.skipped_in_a_row));
  return false;
}

void Trainer::end_epoch(fabric::Endpoint& endpoint) {
  count_time(endpoint);
  state_.train_loss = running_loss();
  const bool last = order_.epoch() >= config_.epochs;
  const bool due = last || (config_.evaluate_every > 0 && order_.epoch() % config_.evaluate_every == 0);
  if (due && dataset_.test.count > 0) {
    // Zero units: evaluating is looking at the run, which in the simulator takes no time.
    compute::Evaluation evaluation;
    endpoint.compute(0, [&] { evaluation = evaluate(replica_, dataset_.test, {}); });
    const auto count = static_cast<double>(evaluation.samples);
    state_.test_loss = finite(evaluation.loss_sum / count);
    if (dataset_.test.has_labels()) {
      state_.test_accuracy = static_cast<double>(evaluation.correct) / count;
      state_.best_test_accuracy = std::max(state_.best_test_accuracy.value_or(0), *state_.test_accuracy);
    }
  }
  clock_ = endpoint.now();
  if (metrics_) {
    MetricsRecord record = make_record("epoch");
    if (due) record.test_loss = state_.test_loss;
    if (due) record.test_accuracy = state_.test_accuracy;
    metrics_->append(record);
  }
  if (options_.observer != nullptr) options_.observer->epoch_ended(progress());
}

// False if there is no good state to write.
bool Trainer::write_checkpoint(fabric::Endpoint& endpoint) {
  if (!store_ || checkpointed_step_ == state_.position.number) return true;
  count_time(endpoint);
  if (!all_finite(replica_.weights())) {
    diverge("a weight is not finite");
    return false;
  }
  metrics_->sync();
  state_.metrics_bytes = metrics_->size();
  state_.optimiser_steps = optimiser_->steps();
  state_.total_seconds = earlier_total_seconds_ + to_seconds(endpoint.now());
  const std::string name = store_->write({.state = state_,
                                          .config = config_text_,
                                          .model = replica_.describe(),
                                          .data = data_text_,
                                          .layout = replica_.layout(),
                                          .weights = replica_.weights(),
                                          .optimiser = optimiser_->state()});
  checkpointed_step_ = state_.position.number;
  result_.checkpoint = fmt::format("{}/{}", options_.directory->checkpoints_path(), name);
  if (options_.observer != nullptr) options_.observer->checkpoint_written(result_.checkpoint);
  clock_ = last_checkpoint_ = endpoint.now();
  return true;
}

void Trainer::diverge(const std::string& what) {
  result_.ending = Ending::diverged;
  result_.reason = fmt::format("at step {} {}", state_.position.number, what);
}

void Trainer::report(fabric::Endpoint& endpoint) {
  if (options_.observer == nullptr) return;
  const Time now = endpoint.now();
  if (now - last_report_ < kReportInterval) return;
  last_report_ = now;
  count_time(endpoint);
  options_.observer->progressed(progress());
}

void Trainer::finish() {
  result_.state = state_;
  result_.epochs = epoch();
  result_.train_loss = order_.position().sample == 0 ? state_.train_loss : running_loss();
  result_.weights_sha256 = sha256_hex(std::as_bytes(replica_.weights()));
}

MetricsRecord Trainer::make_record(const char* kind) const {
  return {.kind = kind,
          .step = state_.position.number,
          .epoch = epoch(),
          .samples = state_.samples,
          .seconds = state_.seconds,
          .samples_per_second = progress().samples_per_second,
          .lr = last_lr_,
          .batch = last_batch_,
          .train_loss = running_loss()};
}

void Trainer::count_time(fabric::Endpoint& endpoint) {
  const Time now = endpoint.now();
  state_.seconds += to_seconds(now - clock_);
  state_.total_seconds = earlier_total_seconds_ + to_seconds(now);
  clock_ = now;
}

double Trainer::epoch() const {
  const data::BatchOrder::Position& position = order_.position();
  return static_cast<double>(position.epoch) + static_cast<double>(position.sample) / static_cast<double>(order_.samples_per_epoch());
}

Progress Trainer::progress() const {
  const double seconds = state_.seconds - earlier_seconds_;
  const double per_epoch = static_cast<double>(order_.samples_per_epoch());
  const double rate = seconds > 0 ? (epoch() - earlier_epochs_) * per_epoch / seconds : 0;
  const double left = (static_cast<double>(config_.epochs) - epoch()) * per_epoch;
  return {.step = state_.position.number,
          .epoch = epoch(),
          .epochs = config_.epochs,
          .samples = state_.samples,
          .skipped = state_.skipped,
          .samples_per_second = rate,
          .seconds = state_.total_seconds - earlier_total_seconds_,
          .seconds_left = rate > 0 ? std::max(0.0, left / rate) : 0,
          .train_loss = running_loss(),
          .test_loss = state_.test_loss,
          .test_accuracy = state_.test_accuracy};
}

std::optional<double> Trainer::running_loss() const {
  if (state_.epoch_samples == 0) return std::nullopt;
  return state_.epoch_loss_sum / static_cast<double>(state_.epoch_samples);
}

}  // namespace starling::run
