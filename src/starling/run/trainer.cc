// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/data/partition.h"
#include "starling/run/run_result.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;
using fabric::Endpoint;

constexpr Duration kReportInterval = 250ms;

// Skipped batches in a row after which there is no hope.
constexpr std::uint64_t kMostSkipped = 100;

// A rank that fails because another failed says who was the first.
Status name_the_lost(Status status, const Endpoint& endpoint) {
  if (status.ok()) return status;
  for (const fabric::Departure& departure : endpoint.departures()) {
    if (departure.state != fabric::PeerState::lost) continue;
    Failure failure = status.failure();
    failure.detail +=
        fmt::format("{}rank {} was lost at {}", failure.detail.empty() ? "" : "; ", departure.rank, format_duration(departure.time));
    return failure;
  }
  return status;
}

}  // namespace

Trainer::Trainer(const RunConfig& config, std::vector<compute::Replica*> replicas, const data::Dataset& dataset, TrainerOptions options)
    : config_(config),
      dataset_(dataset),
      options_(std::move(options)),
      registry_(options_.registry != nullptr ? *options_.registry : strategy::Registry::built_in()),
      description_(registry_.find(config.strategy_name())),
      settings_(config.settings(description_)),
      roles_(config.roles(description_)),
      lockstep_(strategy::in_lockstep(description_, settings_)),
      exchanges_(description_.sends != strategy::Sends::nothing),
      schedule_(config.schedule_options()),
      bytes_sent_(static_cast<std::size_t>(roles_.ranks())),
      saved_(static_cast<std::size_t>(roles_.ranks())),
      config_text_(to_toml(config)),
      data_text_(fingerprint(dataset)),
      gate_(lockstep_) {
  validate(config, registry_);
  STARLING_CHECK(replicas.size() == static_cast<std::size_t>(roles_.workers),
                 fmt::format("{} replicas for {} workers", replicas.size(), roles_.workers));
  const std::vector<compute::Replica*> viewers = viewers_of(replicas);
  const params::Layout& layout = viewers[0]->layout();
  if (static_cast<std::size_t>(roles_.servers) > layout.parameter_count()) {
    throw UserError(fmt::format("there are {} servers for a model of {} parameters", roles_.servers, layout.parameter_count()));
  }
  const std::string partition = description_.needs_generator ? "queue" : config.partition;
  std::vector<std::vector<std::uint32_t>> parts = data::partition(dataset.train, partition, roles_.workers, config.seed());
  if (config.validation > 0) hold_out(parts);
  if (partition == "queue") {
    stream_.emplace(parts[0], config.seed(), schedule_, [this](const data::BatchOrder::Position& at) { return stream_may_go_on(at); });
  }
  for (int worker = 0; worker < roles_.workers; ++worker) {
    const auto index = static_cast<std::size_t>(worker);
    workers_.push_back(
        std::make_unique<Worker>(*replicas[index], *viewers[index], data::WorkerBatches(parts, partition, worker, config.seed())));
    if (config.on_nan == OnNan::skip) workers_.back()->buffers_before.resize(workers_.back()->buffers().size());
    // With a shared order nobody has samples of its own.
    part_samples_.push_back(partition == "shared" || partition == "queue" ? 1 : parts[index].size());
  }
  model_.assign(viewers[0]->weights().begin(), viewers[0]->weights().end());
  state_.workers.resize(workers_.size());
  ledger_.emplace(roles_.ranks(), roles_.workers, strategy::place_ranks(description_.places, roles_));
  if (options_.directory != nullptr) write_into(*options_.directory);
}

Trainer::~Trainer() = default;

// The replicas themselves, unless they are parts: then they must be the right ones.
std::vector<compute::Replica*> Trainer::viewers_of(const std::vector<compute::Replica*>& replicas) const {
  if (!description_.trains_parts) return replicas;
  STARLING_CHECK(options_.viewers.size() == replicas.size(),
                 fmt::format("{} replicas of the whole model beside {} parts", options_.viewers.size(), replicas.size()));
  for (int worker = 0; worker < roles_.workers; ++worker) {
    const auto index = static_cast<std::size_t>(worker);
    const params::Layout part = description_.part_layout(settings_, roles_, options_.viewers[index]->layout(), worker);
    const std::string difference = params::difference(part, replicas[index]->layout());
    STARLING_CHECK(difference.empty(), fmt::format("the replica of worker {} is not its part: {}", worker, difference));
  }
  return options_.viewers;
}

// Takes the validation samples out of the workers' parts.
void Trainer::hold_out(std::vector<std::vector<std::uint32_t>>& parts) {
  const std::vector<std::uint32_t> held = data::hold_out(dataset_.train, config_.validation, config_.seed());
  if (held.empty()) {
    throw UserError(fmt::format("validation is {}, which is not one of {} training samples", config_.validation, dataset_.train.count));
  }
  validation_ = data::subset(dataset_.train, held);
  for (std::size_t worker = 0; worker < parts.size(); ++worker) {
    std::erase_if(parts[worker], [&](std::uint32_t index) { return std::binary_search(held.begin(), held.end(), index); });
    if (parts[worker].empty()) throw UserError(fmt::format("with validation {} worker {} has no samples left", config_.validation, worker));
  }
}

void Trainer::write_into(RunDirectory& directory) {
  options_.directory = &directory;
  store_.emplace(directory.checkpoints_path());
  if (config_.snapshots > 0) snapshots_.emplace(directory.path());
}

void Trainer::run() {
  FabricConfig fabric_config = config_.fabric;
  fabric_config.sim.ranks = roles_.ranks();
  fabric_config.sim.trace = options_.trace;
  fabric_config.sim.start_time = state_.clock;
  fabric_config.sim.start_number = state_.stretches;
  begin_ = clock_ = last_report_ = last_checkpoint_ = last_seen_ = state_.clock;
  if (options_.directory != nullptr && !metrics_) {
    metrics_.emplace(options_.directory->metrics_path(), state_.metrics_bytes);
    if (metrics_->size() < state_.metrics_bytes && options_.observer != nullptr) {
      options_.observer->noted(fmt::format("'{}' is shorter than when the checkpoint was written; records are missing from it",
                                           options_.directory->metrics_path()));
    }
  }
  if (options_.directory != nullptr) options_.directory->remove_result();
  if (snapshots_) {
    const data::BatchOrder::Position& position = workers_[0]->batches.progress();
    snapshots_->drop_after(position.number);
    next_snapshot_ = snapshots_due(workers_[0]->batches.epoch(), config_.snapshots) + 1;
    if (position.number == 0) snapshots_->write({.weights = model_}, workers_[0]->viewer.layout());
  }
  if (options_.observer != nullptr && description_.opening) {
    const std::string text = description_.opening(settings_, roles_, workers_[0]->viewer.layout());
    if (!text.empty()) options_.observer->noted(text);
  }
  // The first checkpoint, so that there is one from the start, and a folder that cannot be written is known before any work is done.
  gather_state();
  if (!all_finite(model_)) diverge(state_.position.number, "a weight is not finite");
  write_checkpoint(state_.clock);
  open_stream();
  over_ = std::all_of(workers_.begin(), workers_.end(), [&](const auto& worker) { return is_over(worker->batches.progress()); });
  if (!over_ && !diverged_) {
    report_ = make_fabric(fabric_config)->run([&](Endpoint& endpoint) {
      return roles_.is_worker(endpoint.rank()) ? work(endpoint) : serve(endpoint);
    });
    if (!given_up_) judge(report_);
  }
  finish();
}

// The body of a worker: stretch after stretch.
Status Trainer::work(Endpoint& raw) {
  // Only with servers can a worker that was lost come back in the middle of a stretch.
  if (raw.incarnation() > 0 && !description_.needs_servers) return {};
  fabric::MeteredEndpoint endpoint(raw);
  collective::Meeting meeting(endpoint, patience());
  Worker& worker = *workers_[static_cast<std::size_t>(endpoint.rank())];
  for (;;) {
    worker.bytes_before = endpoint.bytes_moved();
    const std::unique_ptr<strategy::Strategy> strategy = make_strategy(endpoint);
    STARLING_TRY(name_the_lost(strategy->start(worker.parameters(), std::span<const float>(model_).first(worker.model.size())), endpoint));
    Result<bool> to_the_meeting = train(endpoint, *strategy, worker);
    if (!to_the_meeting) return name_the_lost(to_the_meeting.failure(), endpoint);
    if (!*to_the_meeting) return {};
    const Time finishing = endpoint.now();
    STARLING_TRY(name_the_lost(strategy->finish(worker.parameters(), worker.model), endpoint));
    ledger_->account(endpoint.rank()).time().waiting += endpoint.now() - finishing;
    count_bytes(endpoint, worker.bytes_before);
    save(*strategy, saved_[static_cast<std::size_t>(endpoint.rank())]);
    if (description_.own_models && settings_.choice("result") == "best") validate_own_model(endpoint, worker);
    STARLING_TRY(meet(meeting, endpoint, &worker));
    if (over_ || given_up_) return {};
    STARLING_TRY(begin_next_stretch(endpoint));
  }
}

Status Trainer::serve(Endpoint& raw) {
  fabric::MeteredEndpoint endpoint(raw);
  collective::Meeting meeting(endpoint, patience());
  for (;;) {
    const std::uint64_t bytes_before = endpoint.bytes_moved();
    endpoint.publish(&bytes_sent_[static_cast<std::size_t>(endpoint.rank())], ledger_->account(endpoint.rank()).bytes_sent());
    const std::unique_ptr<strategy::Strategy> strategy = make_strategy(endpoint);
    STARLING_TRY(strategy->start_serving());
    STARLING_TRY(strategy->serve());
    if (given_up_) return {};
    count_bytes(endpoint, bytes_before);
    save(*strategy, saved_[static_cast<std::size_t>(endpoint.rank())]);
    STARLING_TRY(meet(meeting, endpoint, nullptr));
    if (over_ || given_up_) return {};
    STARLING_TRY(begin_next_stretch(endpoint));
  }
}

// What a stretch has sent. Meetings do not count: a run that goes on from a checkpoint would not know of the last one.
void Trainer::count_bytes(fabric::MeteredEndpoint& endpoint, std::uint64_t before) {
  ledger::Account& account = ledger_->account(endpoint.rank());
  endpoint.publish(nullptr, 0);
  account.count_bytes_sent(account.bytes_sent() + endpoint.bytes_moved() - before);
  bytes_sent_[static_cast<std::size_t>(endpoint.rank())].store(account.bytes_sent(), std::memory_order_relaxed);
}

Result<bool> Trainer::train(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker) {
  for (;;) {
    const std::uint64_t epoch = worker.batches.progress().epoch;
    const Duration waited = endpoint.waited();
    Result<std::optional<Task>> task = next_task(strategy, worker);
    if (!task) return task.failure();
    ledger_->account(endpoint.rank()).time().waiting += endpoint.waited() - waited;
    if (given_up_) return false;
    if (!*task) return true;
    Result<bool> going = step(endpoint, strategy, worker, **task);
    if (!going) return going.failure();
    if (!*going) return false;
    STARLING_TRY(take_snapshot_if_due(endpoint, strategy, worker));
    const data::BatchOrder::Position& position = worker.batches.progress();
    look_around(endpoint);
    if (given_up_) return false;
    if (position.epoch == epoch) continue;
    if (stretch_ends_at(position.epoch)) {
      if (!stream_) return true;  // A stream says itself when it pauses.
    } else if (collective::is_first_alive(endpoint)) {
      STARLING_TRY(end_epoch_on_the_side(endpoint, strategy, worker));
    }
  }
}

Result<std::optional<Trainer::Task>> Trainer::next_task(strategy::Strategy& strategy, Worker& worker) {
  const data::BatchOrder::Position& progress = worker.batches.progress();
  Task task{.number = progress.number + 1};
  if (!stream_) {
    if (is_over(progress) || !gate_.may_begin(task.number)) return std::optional<Task>{};
    task.epoch = progress.epoch;
    task.position = worker.batches.epoch();
    task.draw = worker.batches.next(schedule_.batch(task.position), strategy.takes_part(task.number));
    return std::optional<Task>{task};
  }
  std::optional<strategy::Assignment> assignment;
  if (description_.needs_generator) {
    Result<std::optional<strategy::Assignment>> dealt = strategy.next_batch();
    if (!dealt) return dealt.failure();
    assignment = std::move(*dealt);
  } else {
    assignment = stream_->next();
  }
  if (!assignment) return std::optional<Task>{};
  worker.assignment = std::move(*assignment);
  worker.batches.took({.epoch = worker.assignment.epoch, .sample = worker.assignment.sample, .number = worker.assignment.number});
  task.draw.indices = worker.assignment.indices;
  // A batch never goes beyond the end of an epoch.
  const std::uint64_t all = worker.batches.samples_in_epoch();
  const bool last = worker.assignment.sample == 0;
  task.epoch = worker.assignment.epoch - (last ? 1 : 0);
  const std::uint64_t before = (last ? all : worker.assignment.sample) - task.draw.indices.size();
  task.position = static_cast<double>(task.epoch) + static_cast<double>(before) / static_cast<double>(all);
  return std::optional<Task>{task};
}

void Trainer::open_stream() {
  if (!stream_) return;
  stretch_begins_at_ = stream_->position().number;
  stream_->open();
}

// Asked by whoever takes a batch from the stream, one at a time.
bool Trainer::stream_may_go_on(const data::BatchOrder::Position& position) {
  if (given_up_ || is_over(position) || !gate_.may_begin(position.number + 1)) return false;
  return position.sample != 0 || position.number == stretch_begins_at_ || !stretch_ends_at(position.epoch);
}

// One gradient and its exchange. False if the run is not to go on.
Result<bool> Trainer::step(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker, const Task& task) {
  ledger::Account& account = ledger_->account(endpoint.rank());
  compute::Replica& replica = worker.replica;
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
  std::copy_n(worker.buffers().begin(), worker.buffers_before.size(), worker.buffers_before.begin());
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
  worker.state.progress = worker.batches.progress();
  worker.state.order = worker.batches.order();
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
  std::copy(worker.buffers_before.begin(), worker.buffers_before.end(), worker.buffers().begin());
  const bool epoch_lost = workers_.size() == 1 && worker.state.progress.sample == 0 && worker.state.epoch_samples == 0;
  if (worker.state.skipped_in_a_row < kMostSkipped && !epoch_lost) return true;
  diverge(number, fmt::format("{}, and {} batches in a row were skipped", what, worker.state.skipped_in_a_row));
  return false;
}

// After every step: is somebody waiting for the end, is a checkpoint due, has nobody heard from the run for a while?
void Trainer::look_around(Endpoint& endpoint) {
  const Time now = endpoint.now();
  const std::lock_guard lock(mutex_);
  last_seen_ = std::max(last_seen_, now);
  if (!interrupted_ && options_.stop && options_.stop()) {
    interrupted_ = true;
    // Halting workers that do not wait for each other changes their course. In the simulator a run must not depend on when it was
    // interrupted, so it goes back to the last checkpoint instead.
    if (config_.fabric.name == "sim" && !description_.lockstep) {
      given_up_ = true;
    } else {
      gate_.halt();
    }
  }
  if (config_.checkpoint_interval > Duration::zero() && now - last_checkpoint_ >= config_.checkpoint_interval) gate_.halt();
  if (options_.observer != nullptr && now - last_report_ >= kReportInterval) {
    last_report_ = now;
    options_.observer->progressed(progress(now));
  }
}

// The model as far as the first worker knows it.
Status Trainer::take_snapshot_if_due(Endpoint& endpoint, strategy::Strategy& strategy, Worker& worker) {
  if (!snapshots_ || !collective::is_first_alive(endpoint)) return {};
  const std::uint64_t due = snapshots_due(worker.batches.epoch(), config_.snapshots);
  if (due < next_snapshot_) return {};
  STARLING_TRY(strategy.peek(worker.parameters(), worker.model));
  Snapshot snapshot{.step = worker.batches.progress().number, .epoch = worker.batches.epoch(), .weights = worker.model};
  snapshot.weights.insert(snapshot.weights.end(), worker.buffers().begin(), worker.buffers().end());
  {
    const std::lock_guard lock(mutex_);
    snapshot.samples = progress(endpoint.now()).samples;
  }
  snapshots_->write(snapshot, worker.viewer.layout());
  next_snapshot_ = due + 1;
  return {};
}

// The end of an epoch at which nobody meets: this worker looks at the model as far as it knows it.
Status Trainer::end_epoch_on_the_side(Endpoint& endpoint, strategy::Strategy& strategy, Worker& worker) {
  const std::uint64_t epoch = worker.batches.progress().epoch;
  std::optional<compute::Evaluation> evaluation;
  if (evaluation_is_due(epoch)) {
    STARLING_TRY(strategy.peek(worker.parameters(), worker.model));
    std::vector<float> weights(worker.model.begin(), worker.model.end());
    weights.insert(weights.end(), worker.buffers().begin(), worker.buffers().end());
    endpoint.compute(
        0, [&] { worker.look_at(weights, [&] { evaluation = evaluate_part(worker.viewer, dataset_.test, 1, 0, [&] { ++activity_; }); }); });
  }
  const std::lock_guard lock(mutex_);
  end_epoch(endpoint, worker, evaluation);
  return {};
}

data::BatchOrder::Position Trainer::furthest() const {
  data::BatchOrder::Position result;
  for (const auto& worker : workers_) {
    const data::BatchOrder::Position& position = worker->batches.progress();
    if (std::pair(position.epoch, position.sample) > std::pair(result.epoch, result.sample)) {
      result.epoch = position.epoch;
      result.sample = position.sample;
    }
    result.number = std::max(result.number, position.number);
  }
  return result;
}

void Trainer::diverge(std::uint64_t step, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (diverged_) return;
  diverged_ = true;
  result_.ending = Ending::diverged;
  result_.reason = fmt::format("at step {} {}", step, what);
  given_up_ = true;
}

// What the ranks have to say, where the run was not given up.
void Trainer::judge(const fabric::RunReport& report) {
  if (report.ok()) return;
  report.rethrow();
  const bool failed = std::any_of(report.outcomes.begin(), report.outcomes.end(),
                                  [](const auto& outcome) { return outcome.kind == fabric::RankOutcome::Kind::failed; });
  if (failed || !over_ || !description_.survives_lost_worker) throw std::runtime_error(report.summary());
  for (const fabric::RankOutcome& outcome : report.outcomes) {
    if (outcome.kind == fabric::RankOutcome::Kind::finished) continue;
    result_.lost.push_back(outcome.rank);
    if (options_.observer != nullptr) {
      options_.observer->noted(fmt::format("rank {} was lost ({}); the others finished without it", outcome.rank, outcome.message));
    }
  }
}

// Who is taken for whom, as the last test has it.
void Trainer::count_answers() {
  result_.class_names = dataset_.class_names;
  const bool all_were_there = over_ && result_.ending == Ending::finished && dataset_.test.count > 0 && dataset_.test.has_labels();
  if (!all_were_there || config_.epochs == 0) return;
  if (predictions_.empty()) {  // There was nothing left to do.
    predictions_.resize(dataset_.test.count);
    workers_[0]->look_at(model_, [&] { (void)evaluate(workers_[0]->viewer, dataset_.test, predictions_); });
  }
  const auto classes = static_cast<std::size_t>(dataset_.test.classes);
  result_.confusion.assign(classes, std::vector<std::uint64_t>(classes));
  for (std::size_t i = 0; i < predictions_.size(); ++i) {
    ++result_.confusion[static_cast<std::size_t>(dataset_.test.labels[i])][static_cast<std::size_t>(predictions_[i])];
  }
}

void Trainer::finish() {
  if (given_up_ && !diverged_) {
    result_.ending = Ending::interrupted;
    result_.back_to_checkpoint = true;
  }
  if (given_up_) {
    state_.seconds = seconds_at(last_seen_);
    gather_state();
  }
  state_.total_seconds = earlier_total_seconds_ + to_seconds(last_seen_ - begin_);
  result_.state = state_;
  result_.epochs = epochs_done();
  result_.train_loss = furthest().sample == 0 ? state_.train_loss : running_loss();
  result_.weights_sha256 = sha256_hex(std::as_bytes(std::span<const float>(model_)));
  result_.balance = given_up_ ? balance_given_up() : ledger_->close(result_.lost);
  result_.roles = roles_;
  count_answers();
  if (options_.directory != nullptr) options_.directory->write_result(to_json(config_, options_.directory->path(), result_));
  if (!given_up_ && exchanges_ && options_.observer != nullptr && furthest().number > 0 && result_.balance.produced == 0 &&
      roles_.workers > 1) {
    options_.observer->noted(
        "no update was exchanged: perhaps the run has fewer steps than the strategy takes from one exchange to the next");
  }
}

// Nobody has waited for what was under way.
ledger::Balance Trainer::balance_given_up() const {
  std::vector<int> all(static_cast<std::size_t>(roles_.ranks()));
  std::iota(all.begin(), all.end(), 0);
  ledger::Balance balance = ledger_->close(all);
  std::uint64_t open = 0;
  for (const char* reason : {ledger::kSenderLost, ledger::kReceiverLost}) {
    const auto found = balance.dropped.find(reason);
    if (found == balance.dropped.end()) continue;
    open += found->second;
    balance.dropped.erase(found);
  }
  if (open > 0) balance.dropped["run given up"] = open;
  return balance;
}

std::unique_ptr<strategy::Strategy> Trainer::make_strategy(Endpoint& endpoint) {
  const int rank = endpoint.rank();
  std::unique_ptr<strategy::Strategy> made = description_.make({.endpoint = endpoint,
                                                                .roles = roles_,
                                                                .layout = workers_[0]->viewer.layout(),
                                                                .settings = settings_,
                                                                .account = ledger_->account(rank),
                                                                .optimiser = config_.optimiser,
                                                                .two_stage = config_.schedule.two_stage,
                                                                .codec = config_.codec,
                                                                .part_samples = part_samples_,
                                                                .seed = config_.seed(),
                                                                .stretch = state_.stretches,
                                                                .patience = patience(),
                                                                .skips_not_finite = config_.on_nan == OnNan::skip,
                                                                .batches = stream_ ? &*stream_ : nullptr});
  // A rank that was lost before its first checkpoint has nothing to find again, and begins as a new one.
  const Saved& saved = saved_[static_cast<std::size_t>(rank)];
  if (has_saved_ && !(saved.vectors.empty() && saved.numbers.empty())) load(*made, saved);
  return made;
}

bool Trainer::checkpoint_is_due(std::uint64_t epoch) const {
  return epoch >= config_.epochs || (config_.checkpoint_every > 0 && epoch % config_.checkpoint_every == 0);
}

// Workers in lockstep also meet to look at the model: they would wait for the one that looks all the same.
bool Trainer::stretch_ends_at(std::uint64_t epoch) const {
  return checkpoint_is_due(epoch) || (description_.lockstep && evaluation_is_due(epoch));
}

bool Trainer::evaluation_is_due(std::uint64_t epoch) const {
  if (dataset_.test.count == 0) return false;
  return epoch >= config_.epochs || (config_.evaluate_every > 0 && epoch % config_.evaluate_every == 0);
}

fabric::Patience Trainer::patience() {
  return {.slice = config_.fabric.sim.timeout, .progress = [this] { return activity_.load(std::memory_order_relaxed); }};
}

}  // namespace starling::run
