// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/data/partition.h"
#include "starling/run/run_result.h"
#include "starling/run/trainer_spread.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {

using fabric::Endpoint;

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

Trainer::Trainer(const RunConfig& config, const std::vector<compute::Replica*>& replicas, const data::Dataset& dataset,
                 TrainerOptions options)
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
      halting_(std::make_unique<SharedHalting>(lockstep_)) {
  validate(config, registry_);
  if (options_.fabric != nullptr) make_spread(*options_.fabric);
  STARLING_CHECK(replicas.size() == static_cast<std::size_t>(roles_.workers),
                 fmt::format("{} replicas for {} workers", replicas.size(), roles_.workers));
  const std::vector<compute::Replica*> viewers = viewers_of(replicas);
  const auto given = std::find_if(viewers.begin(), viewers.end(), [](const compute::Replica* viewer) { return viewer != nullptr; });
  STARLING_CHECK(given != viewers.end(), std::string("there is no replica of the whole model"));
  whole_ = *given;
  if (static_cast<std::size_t>(roles_.servers) > whole_->layout().parameter_count()) {
    throw UserError(fmt::format("there are {} servers for a model of {} parameters", roles_.servers, whole_->layout().parameter_count()));
  }
  make_workers(replicas, viewers);
  model_.assign((*given)->weights().begin(), (*given)->weights().end());
  state_.workers.resize(workers_.size());
  ledger_.emplace(roles_.ranks(), roles_.workers, strategy::place_ranks(description_.places, roles_));
  if (!writes_files()) options_.observer = nullptr;
  if (options_.directory != nullptr) write_into(*options_.directory);
}

Trainer::~Trainer() = default;

bool Trainer::is_here(fabric::Rank rank) const { return !spread_ || spread_->rank == rank; }

// Where batches are taken: by all in this process, by the generator, or where there is none by every worker from its own copy.
bool Trainer::has_stream(const std::string& partition) const {
  if (partition != "queue") return false;
  return !spread_ || (description_.needs_generator ? is_here(roles_.generator()) : roles_.is_worker(spread_->rank));
}

void Trainer::make_workers(const std::vector<compute::Replica*>& replicas, const std::vector<compute::Replica*>& viewers) {
  const std::string partition = description_.needs_generator ? "queue" : config_.partition;
  std::vector<std::vector<std::uint32_t>> parts = data::partition(dataset_.train, partition, roles_.workers, config_.seed());
  if (config_.validation > 0) hold_out(parts);
  from_stream_ = partition == "queue";
  if (has_stream(partition)) {
    stream_.emplace(parts[0], config_.seed(), schedule_, [this](const data::BatchOrder::Position& at) { return stream_may_go_on(at); });
  }
  const data::WorkerBatches any(parts, partition, 0, config_.seed());
  samples_in_epoch_ = any.samples_in_epoch();
  samples_per_epoch_ = static_cast<double>(any.samples_per_epoch()) * roles_.workers;
  for (int worker = 0; worker < roles_.workers; ++worker) {
    const auto index = static_cast<std::size_t>(worker);
    // With a shared order nobody has samples of its own.
    part_samples_.push_back(partition == "shared" || partition == "queue" ? 1 : parts[index].size());
    if (!is_here(worker)) {
      workers_.push_back(std::make_unique<Worker>());
      continue;
    }
    STARLING_CHECK(replicas[index] != nullptr && viewers[index] != nullptr, fmt::format("worker {} has no replica", worker));
    workers_.push_back(
        std::make_unique<Worker>(*replicas[index], *viewers[index], data::WorkerBatches(parts, partition, worker, config_.seed())));
    if (config_.on_nan == OnNan::skip) workers_.back()->buffers_before.resize(workers_.back()->own_buffers().size());
  }
}

// The replicas themselves, unless they are parts: then they must be the right ones.
std::vector<compute::Replica*> Trainer::viewers_of(const std::vector<compute::Replica*>& replicas) const {
  if (!description_.trains_parts) return replicas;
  STARLING_CHECK(options_.viewers.size() == replicas.size(),
                 fmt::format("{} replicas of the whole model beside {} parts", options_.viewers.size(), replicas.size()));
  for (int worker = 0; worker < roles_.workers; ++worker) {
    const auto index = static_cast<std::size_t>(worker);
    if (replicas[index] == nullptr || options_.viewers[index] == nullptr) continue;  // It lives elsewhere.
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
  if (!writes_files()) {
    options_.directory = nullptr;
    return;
  }
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
  // The clock of a fabric that is given begins at zero.
  const Time begin = options_.fabric != nullptr ? Time::zero() : state_.clock;
  begin_ = clock_ = last_report_ = last_checkpoint_ = last_seen_ = begin;
  prepare_files();
  if (options_.observer != nullptr && description_.opening) {
    const std::string text = description_.opening(settings_, roles_, whole_->layout());
    if (!text.empty()) options_.observer->noted(text);
  }
  // The first checkpoint, so that there is one from the start, and a folder that cannot be written is known before any work is done.
  gather_state();
  if (!all_finite(model_)) diverge(state_.position.number, "a weight is not finite");
  write_checkpoint(begin);
  open_stream();
  over_ = std::all_of(workers_.begin(), workers_.end(), [&](const auto& worker) { return is_over(worker->progress()); });
  if (!over_ && !diverged_) {
    const std::unique_ptr<fabric::Fabric> made = options_.fabric != nullptr ? nullptr : make_fabric(fabric_config);
    report_ = (options_.fabric != nullptr ? *options_.fabric : *made).run([&](Endpoint& endpoint) {
      if (spread_) return run_spread(endpoint);
      return roles_.is_worker(endpoint.rank()) ? name_the_lost(work(endpoint), endpoint) : serve(endpoint);
    });
    if (given_up_) gather_given_up();
    if (!given_up_) judge(report_);
  }
  finish();
}

void Trainer::prepare_files() {
  if (options_.directory != nullptr && !metrics_) {
    metrics_.emplace(options_.directory->metrics_path(), state_.metrics_bytes);
    if (metrics_->size() < state_.metrics_bytes && options_.observer != nullptr) {
      options_.observer->noted(fmt::format("'{}' is shorter than when the checkpoint was written; records are missing from it",
                                           options_.directory->metrics_path()));
    }
  }
  if (options_.directory != nullptr) options_.directory->remove_result();
  if (snapshots_) {
    const data::BatchOrder::Position& position = workers_[0]->progress();
    snapshots_->drop_after(position.number);
    next_snapshot_ = snapshots_due(fraction(position), config_.snapshots) + 1;
    if (position.number == 0) snapshots_->write({.weights = model_}, whole_->layout());
  }
}

// The body of a worker: stretch after stretch.
Status Trainer::work(Endpoint& raw) {
  // Only with servers can a worker that was lost come back in the middle of a stretch.
  if (raw.incarnation() > 0 && !description_.needs_servers) return {};
  fabric::MeteredEndpoint endpoint(raw);
  const collective::Attendance attendance = spread_ ? collective::Attendance::all : collective::Attendance::those_there;
  collective::Meeting meeting(endpoint, patience(endpoint), attendance);
  Worker& worker = *workers_[static_cast<std::size_t>(endpoint.rank())];
  for (;;) {
    worker.bytes_before = endpoint.bytes_moved();
    const std::unique_ptr<strategy::Strategy> strategy = make_strategy(endpoint);
    STARLING_TRY(strategy->start(worker.parameters(), std::span<const float>(model_).first(worker.model.size())));
    Result<bool> to_the_meeting = train(endpoint, *strategy, worker);
    if (!to_the_meeting) return to_the_meeting.failure();
    if (!*to_the_meeting) return {};
    const Time finishing = endpoint.now();
    STARLING_TRY(strategy->finish(worker.parameters(), worker.model));
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
  const collective::Attendance attendance = spread_ ? collective::Attendance::all : collective::Attendance::those_there;
  collective::Meeting meeting(endpoint, patience(endpoint), attendance);
  for (;;) {
    std::uint64_t bytes_before = endpoint.bytes_moved();
    endpoint.publish(&bytes_sent_[static_cast<std::size_t>(endpoint.rank())], ledger_->account(endpoint.rank()).bytes_sent());
    const std::unique_ptr<strategy::Strategy> strategy = make_strategy(endpoint);
    if (spread_) {
      endpoint.after_receive([&] {
        const std::uint64_t before = endpoint.bytes_moved();
        look_around_serving();
        bytes_before += endpoint.bytes_moved() - before;
      });
    }
    STARLING_TRY(strategy->start_serving());
    STARLING_TRY(strategy->serve());
    endpoint.after_receive({});
    if (heard_given_up()) return {};
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

data::BatchOrder::Position Trainer::furthest() const {
  data::BatchOrder::Position result;
  for (const auto& worker : workers_) {
    const data::BatchOrder::Position& position = worker->progress();
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
  if (failed || !over_ || spread_ || !description_.survives_lost_worker) throw std::runtime_error(report.summary());
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
  if (!all_were_there || config_.epochs == 0 || !writes_files()) return;
  if (predictions_.empty()) {  // There was nothing left to do.
    predictions_.resize(dataset_.test.count);
    workers_[0]->look_at(model_, [&] { (void)evaluate(*workers_[0]->viewer, dataset_.test, predictions_); });
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
  result_.epochs = writes_files() ? epochs_done() : spread_->epochs;
  result_.train_loss = furthest().sample == 0 || !writes_files() ? state_.train_loss : running_loss();
  result_.weights_sha256 = sha256_hex(std::as_bytes(std::span<const float>(model_)));
  if (writes_files()) result_.balance = given_up_ ? balance_given_up() : ledger_->close(result_.lost);
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
                                                                .layout = whole_->layout(),
                                                                .settings = settings_,
                                                                .account = ledger_->account(rank),
                                                                .optimiser = config_.optimiser,
                                                                .two_stage = config_.schedule.two_stage,
                                                                .codec = config_.codec,
                                                                .part_samples = part_samples_,
                                                                .seed = config_.seed(),
                                                                .stretch = state_.stretches,
                                                                .patience = patience(endpoint),
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

fabric::Patience Trainer::patience(Endpoint& endpoint) {
  return {.slice = config_.fabric.sim.timeout,
          .progress = [this, &endpoint] { return activity_.load(std::memory_order_relaxed) + endpoint.others_progress(); }};
}

}  // namespace starling::run
