// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a Trainer carry to a meeting and back where they live in several processes. A meeting is held twice: the first time all
// bring how far they are, and rank 0 decides what is to be done; the second time they bring what it needs for that, and hear how the run
// goes on.
#include <algorithm>
#include <utility>

#include "starling/base/bytes.h"
#include "starling/run/trainer_spread.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {
namespace {

using fabric::Rank;

void put(ByteWriter& writer, const data::BatchOrder::Position& position) {
  writer.put(position.epoch);
  writer.put(position.sample);
  writer.put(position.number);
}

data::BatchOrder::Position get_position(ByteReader& reader) {
  data::BatchOrder::Position position;
  position.epoch = reader.get<std::uint64_t>();
  position.sample = reader.get<std::uint64_t>();
  position.number = reader.get<std::uint64_t>();
  return position;
}

void put(ByteWriter& writer, const WorkerState& state) {
  put(writer, state.progress);
  put(writer, state.order);
  writer.put(state.samples);
  writer.put(state.skipped);
  writer.put(state.skipped_in_a_row);
  writer.put(state.epoch_loss_sum);
  writer.put(state.epoch_samples);
}

WorkerState get_worker_state(ByteReader& reader) {
  WorkerState state;
  state.progress = get_position(reader);
  state.order = get_position(reader);
  state.samples = reader.get<std::uint64_t>();
  state.skipped = reader.get<std::uint64_t>();
  state.skipped_in_a_row = reader.get<std::uint64_t>();
  state.epoch_loss_sum = reader.get<double>();
  state.epoch_samples = reader.get<std::uint64_t>();
  return state;
}

void put(ByteWriter& writer, const compute::Evaluation& evaluation) {
  writer.put(evaluation.loss_sum);
  writer.put(static_cast<std::uint64_t>(evaluation.samples));
  writer.put(static_cast<std::uint64_t>(evaluation.correct));
}

compute::Evaluation get_evaluation(ByteReader& reader) {
  compute::Evaluation evaluation;
  evaluation.loss_sum = reader.get<double>();
  evaluation.samples = reader.get<std::uint64_t>();
  evaluation.correct = reader.get<std::uint64_t>();
  return evaluation;
}

// Where the run stands, as it is shown at its end; what only a checkpoint needs is left out.
void put(ByteWriter& writer, const RunState& state) {
  put(writer, state.position);
  for (const std::uint64_t number : {state.steps, state.samples, state.skipped, state.stretches}) writer.put(number);
  writer.put(state.seconds);
  for (const auto& value : {state.train_loss, state.test_loss, state.test_accuracy, state.best_test_accuracy}) writer.put(value);
}

void get_into(ByteReader& reader, RunState& state) {
  state.position = get_position(reader);
  for (std::uint64_t* number : {&state.steps, &state.samples, &state.skipped, &state.stretches}) *number = reader.get<std::uint64_t>();
  state.seconds = reader.get<double>();
  for (auto* value : {&state.train_loss, &state.test_loss, &state.test_accuracy, &state.best_test_accuracy}) {
    *value = reader.get_optional<double>();
  }
}

}  // namespace

collective::Parcels Trainer::arrival_parcels(Rank rank) {
  return {.bring = [this, rank] { return to_payload(arrival(rank)); },
          .receive = [this](Rank from, const fabric::Payload& payload) { take_arrival(from, payload.bytes()); },
          .give = [this] { return to_payload(decision()); },
          .take = [this, rank](const fabric::Payload& payload) { take_decision(rank, payload.bytes()); }};
}

collective::Parcels Trainer::conclusion_parcels(Rank rank) {
  return {.bring = [this, rank] { return to_payload(closing_words(rank)); },
          .receive = [this](Rank from, const fabric::Payload& payload) { take_closing_words(from, payload.bytes()); },
          .give = [this] { return to_payload(conclusion()); },
          .take = [this](const fabric::Payload& payload) { take_conclusion(payload.bytes()); }};
}

std::vector<std::byte> Trainer::arrival(Rank rank) {
  ByteWriter writer;
  writer.put(interrupted_);
  writer.put_all(std::span<const std::byte>(report_of(rank)));
  if (stream_) put(writer, stream_->position());
  if (!roles_.is_worker(rank)) return writer.take();
  Worker& worker = *workers_[static_cast<std::size_t>(rank)];
  put(writer, worker.state);
  put(writer, worker.validation);
  writer.put_all(worker.buffers());
  if (description_.own_models) writer.put_all(std::span<const float>(worker.model));
  return writer.take();
}

void Trainer::take_arrival(Rank rank, std::span<const std::byte> bytes) {
  ++activity_;  // For those who wait for all others to be heard.
  ByteReader reader(bytes);
  interrupted_ = reader.get<bool>() || interrupted_;
  take_report(rank, reader.get_all<std::byte>());
  // With a generator only that has the stream, without one all workers.
  if (from_stream_ && (description_.needs_generator ? rank == roles_.generator() : roles_.is_worker(rank))) {
    const data::BatchOrder::Position position = get_position(reader);
    if (position.number > spread_->stream.number) spread_->stream = position;
  }
  if (roles_.is_worker(rank)) {
    Worker& worker = *workers_[static_cast<std::size_t>(rank)];
    worker.state = get_worker_state(reader);
    worker.validation = get_evaluation(reader);
    worker.told_buffers = reader.get_all<float>();
    if (description_.own_models) worker.model = reader.get_all<float>();
  }
  reader.check_end();
}

// Every worker has the parameters already, unless each has others.
std::vector<std::byte> Trainer::decision() {
  ByteWriter writer;
  writer.put(given_up_.load());
  if (given_up_) {
    writer.put_text(result_.reason);
    return writer.take();
  }
  writer.put(evaluates_now_);
  writer.put(closes_now_);
  put(writer, spread_->stream);
  const std::size_t parameters = description_.own_models ? 0 : whole_->layout().parameter_count();
  writer.put_all(std::span<const float>(model_).subspan(parameters));
  return writer.take();
}

void Trainer::take_decision(Rank rank, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  if (reader.get<bool>()) return take_given_up(reader.get_text());
  evaluates_now_ = reader.get<bool>();
  closes_now_ = reader.get<bool>();
  spread_->stream = get_position(reader);
  const std::size_t parameters = description_.own_models ? 0 : whole_->layout().parameter_count();
  reader.get_into(std::span(model_).subspan(parameters));
  reader.check_end();
  if (evaluates_now_ && dataset_.test.has_labels()) predictions_.resize(dataset_.test.count);
  if (stream_) stream_->seek(spread_->stream);
  if (!roles_.is_worker(rank)) return;
  Worker& worker = *workers_[static_cast<std::size_t>(rank)];
  worker.evaluation = {};
  std::copy_n(worker.model.begin(), parameters, model_.begin());
  if (!from_stream_) return;
  worker.align(spread_->stream);
  publish(worker);
}

std::vector<std::byte> Trainer::closing_words(Rank rank) {
  ByteWriter writer;
  const auto index = static_cast<std::size_t>(rank);
  if (roles_.is_worker(rank)) {
    put(writer, workers_[index]->evaluation);
    if (evaluates_now_) {
      const PartRange part = part_range(dataset_.test, roles_.workers, rank);
      const std::span<const std::int32_t> all(predictions_);
      writer.put_all(all.empty() ? all : all.subspan(part.begin, part.end - part.begin));
    }
  }
  if (!closes_now_) return writer.take();
  writer.put_text(ledger_->save_account(rank));
  writer.put(static_cast<std::uint64_t>(saved_[index].vectors.size()));
  for (const auto& [name, values] : saved_[index].vectors) {
    writer.put_text(name);
    writer.put_all(std::span<const float>(values));
  }
  writer.put(static_cast<std::uint64_t>(saved_[index].numbers.size()));
  for (const auto& [name, number] : saved_[index].numbers) {
    writer.put_text(name);
    writer.put(number);
  }
  if (roles_.is_worker(rank)) writer.put_all(weights_apart(*workers_[index]));
  return writer.take();
}

void Trainer::take_closing_words(Rank rank, std::span<const std::byte> bytes) {
  ++activity_;
  ByteReader reader(bytes);
  const auto index = static_cast<std::size_t>(rank);
  if (roles_.is_worker(rank)) {
    workers_[index]->evaluation = get_evaluation(reader);
    if (evaluates_now_) {
      const PartRange part = part_range(dataset_.test, roles_.workers, rank);
      const std::span<std::int32_t> all(predictions_);
      reader.get_into(all.empty() ? all : all.subspan(part.begin, part.end - part.begin));
    }
  }
  if (closes_now_) {
    ledger_->restore_account(rank, reader.get_text());
    Saved& saved = saved_[index];
    saved = {};
    for (auto left = reader.get<std::uint64_t>(); left > 0; --left) {
      const std::string name = reader.get_text();
      saved.vectors[name] = reader.get_all<float>();
    }
    for (auto left = reader.get<std::uint64_t>(); left > 0; --left) {
      const std::string name = reader.get_text();
      saved.numbers[name] = reader.get<std::uint64_t>();
    }
    if (roles_.is_worker(rank)) workers_[index]->told_weights = reader.get_all<float>();
  }
  reader.check_end();
}

std::vector<std::byte> Trainer::conclusion() {
  ByteWriter writer;
  writer.put(over_);
  writer.put(result_.ending == Ending::interrupted);
  writer.put(epochs_done());
  put(writer, state_);
  return writer.take();
}

void Trainer::take_conclusion(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  over_ = reader.get<bool>();
  if (reader.get<bool>()) result_.ending = Ending::interrupted;
  spread_->epochs = reader.get<double>();
  get_into(reader, state_);
  reader.check_end();
  has_saved_ = true;
  ++activity_;
}

// What the others brought for a checkpoint: they have it themselves, and rank 0 has no room for all of them for long.
void Trainer::forget_what_was_told() {
  for (const auto& worker : workers_) {
    worker->told_weights = {};
    if (!worker->is_here() && description_.own_models) worker->model = {};
  }
  for (std::size_t rank = 0; rank < saved_.size(); ++rank) {
    if (!is_here(static_cast<Rank>(rank))) saved_[rank] = {};
  }
}

// Of a run that was given up.
std::vector<std::byte> Trainer::last_words(Rank rank) {
  ByteWriter writer;
  writer.put_text(ledger_->save_account(rank));
  writer.put_all(std::span<const std::byte>(report_of(rank)));
  if (roles_.is_worker(rank)) put(writer, workers_[static_cast<std::size_t>(rank)]->state);
  return writer.take();
}

void Trainer::take_last_words(Rank rank, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  ledger_->restore_account(rank, reader.get_text());
  take_report(rank, reader.get_all<std::byte>());
  if (roles_.is_worker(rank)) workers_[static_cast<std::size_t>(rank)]->state = get_worker_state(reader);
  reader.check_end();
}

}  // namespace starling::run
