// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A Trainer whose ranks live in several processes: what a rank does beside its strategy while it runs, and how a run ends that was given
// up. What is carried to meetings is in trainer_parcels.cc.
#include "starling/run/trainer_spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "starling/base/bytes.h"
#include "starling/base/error.h"
#include "starling/run/spread_halting.h"
#include "starling/run/trainer_worker.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;
using fabric::Endpoint;
using fabric::Rank;

constexpr Duration kLookInterval = 100ms;
constexpr Duration kReportInterval = 250ms;

// How long the news that a run is given up may take longer than the news that somebody has ended.
constexpr Duration kNewsDelay = 1s;

// The numbers of batches are floats, exact up to 2^24. A stretch ends long before.
constexpr std::uint64_t kMostNumbers = std::uint64_t{1} << 23;

constexpr fabric::Tag kLastWords = 1;

// Beyond those of signals (signals.cc).
constexpr fabric::Tag kIdentity = fabric::kFirstReservedTag | 0x4000'0021;

}  // namespace

void Trainer::make_spread(const fabric::Fabric& fabric) {
  if (fabric.size() != roles_.ranks()) {
    throw UserError(fmt::format("the fabric has {} ranks, but {} workers, {} servers and {} generators are {}", fabric.size(),
                                roles_.workers, roles_.servers, roles_.generators, roles_.ranks()));
  }
  const std::vector<Rank> here = fabric.local_ranks();
  if (here.size() == static_cast<std::size_t>(fabric.size())) return;
  STARLING_CHECK(here.size() == 1, fmt::format("{} of {} ranks live in this process: it can be all or one", here.size(), fabric.size()));
  spread_ = std::make_unique<Spread>(Spread{.rank = here[0]});
}

// The body of the one rank that lives here.
Status Trainer::run_spread(Endpoint& endpoint) {
  // What belongs to the endpoint must not outlive the body, however it ends.
  struct End {
    Trainer& trainer;
    Endpoint& endpoint;
    ~End() {
      endpoint.show_progress(nullptr);
      trainer.halting_.reset();
      trainer.spread_->numbers.reset();
      trainer.spread_->signals.reset();
    }
  };
  const End end{*this, endpoint};
  endpoint.show_progress(&activity_);
  spread_->signals.emplace(endpoint);
  make_spread_halting(endpoint);
  Status status = check_alike(endpoint);
  if (status && from_stream_ && !description_.needs_generator && roles_.is_worker(endpoint.rank())) {
    Result<std::shared_ptr<fabric::Window>> window = endpoint.open_window("batches dealt", 1, 0);
    if (window) spread_->numbers = std::move(*window);
    if (!window) status = window.failure();
  }
  if (status) status = roles_.is_worker(endpoint.rank()) ? work(endpoint) : serve(endpoint);
  return settle(endpoint, std::move(status));
}

// Every process reads configuration, data and checkpoint by itself: all tell rank 0 what they have read, and go on. Throws UserError there
// if somebody's is not the same.
Status Trainer::check_alike(Endpoint& endpoint) {
  if (endpoint.rank() != 0) {
    ByteWriter writer;
    for (const std::string& text : {config_text_, data_text_, whole_->describe()}) writer.put_text(text);
    writer.put(state_.steps);
    return endpoint.send(0, kIdentity, to_payload(writer.take()));
  }
  for (Rank rank = 1; rank < endpoint.size(); ++rank) {
    Result<fabric::Message> message = endpoint.receive(fabric::from(rank, kIdentity));
    if (!message) return message.failure();
    const std::string difference = difference_from(message->payload.bytes());
    if (difference.empty()) continue;
    throw UserError(fmt::format("rank {} {}: all processes must find the same files under the same paths", rank, difference));
  }
  return {};
}

std::string Trainer::difference_from(std::span<const std::byte> identity) const {
  ByteReader reader(identity);
  const std::string config = reader.get_text();
  const std::string data = reader.get_text();
  const std::string model = reader.get_text();
  const auto steps = reader.get<std::uint64_t>();
  if (config != config_text_) {
    const std::optional<std::string> first = conflict(parse_run_config(config, "of another rank"), config_);
    return fmt::format("has another configuration than rank 0{}", first ? fmt::format(" (at rank 0 {} there)", *first) : "");
  }
  if (data != data_text_) return fmt::format("has other data ({}) than rank 0 ({})", data, data_text_);
  if (model != whole_->describe()) return fmt::format("has another model ({}) than rank 0 ({})", model, whole_->describe());
  if (steps != state_.steps) return fmt::format("begins at step {}, but rank 0 at step {}", steps, state_.steps);
  return "";
}

void Trainer::make_spread_halting(Endpoint& endpoint) {
  const Rank rank = endpoint.rank();
  const std::vector<Rank> all = roles_.worker_group().members();
  std::vector<Rank> in_step{rank};
  if (roles_.is_worker(rank) && lockstep_) in_step = description_.step_group ? description_.step_group(settings_, roles_, rank) : all;
  // Workers with a generator halt when it deals out no more.
  const std::vector<Rank> to_halt = description_.needs_generator ? std::vector<Rank>{roles_.generator()} : all;
  std::vector<Rank> others;
  std::copy_if(to_halt.begin(), to_halt.end(), std::back_inserter(others),
               [&](Rank other) { return std::find(in_step.begin(), in_step.end(), other) == in_step.end(); });
  halting_ = std::make_unique<SpreadHalting>(endpoint, *spread_->signals, std::move(in_step), std::move(others), state_.stretches);
}

// How the body ends. A rank that gives up ends the waits of all others, which then see a departure; so before that is taken for a failure,
// they look whether they were told why.
Status Trainer::settle(Endpoint& endpoint, Status status) {
  Signals& signals = *spread_->signals;
  if (!status && !given_up_) {
    const std::vector<fabric::Departure> departures = endpoint.departures();
    const bool any_lost = std::any_of(departures.begin(), departures.end(),
                                      [](const fabric::Departure& one) { return one.state == fabric::PeerState::lost; });
    signals.await_given_up(any_lost || status.failure().kind != FailureKind::peer_lost ? Duration::zero() : kNewsDelay);
    if (signals.given_up()) take_given_up(*signals.given_up());
  }
  if (!given_up_) return name_the_lost(std::move(status), endpoint);
  signals.tell_given_up(result_.reason);
  return {};
}

// Somebody has told.
void Trainer::take_given_up(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (diverged_) return;
  diverged_ = true;
  result_.ending = Ending::diverged;
  result_.reason = reason;
  given_up_ = true;
}

bool Trainer::heard_given_up() {
  if (spread_ && !given_up_) {
    spread_->signals->look();
    if (spread_->signals->given_up()) take_given_up(*spread_->signals->given_up());
  }
  return given_up_;
}

// Between two steps of a worker.
Status Trainer::look_at_others(Endpoint& endpoint) {
  if (heard_given_up()) return {};
  answer_if_asked();
  const Time now = endpoint.now();
  if (endpoint.rank() == 0) {
    spread_->signals->take_reports([&](Rank rank, std::span<const std::byte> bytes) { take_report(rank, bytes); });
    if (now - spread_->asked >= kReportInterval) {
      spread_->asked = now;
      spread_->signals->ask_for_reports();
    }
  }
  if (now - spread_->looked < kLookInterval) return {};
  spread_->looked = now;
  for (const fabric::Departure& departure : endpoint.departures()) {
    // A strategy may survive this, but nobody has the state of a rank that lived elsewhere.
    return Failure{FailureKind::peer_lost, endpoint.rank(), departure.rank, fmt::format("rank {} to go on", departure.rank),
                   Duration::zero(),       "it is gone"};
  }
  return {};
}

// Of a rank that only serves, whenever it has heard something.
void Trainer::look_around_serving() {
  spread_->signals->look();
  answer_if_asked();
  if (interrupted_ || !options_.stop || !options_.stop()) return;
  interrupted_ = true;
  halting_->halt();
}

void Trainer::answer_if_asked() {
  Signals& signals = *spread_->signals;
  if (signals.report_wanted()) signals.report(report_of(spread_->rank));
}

// Where a rank stands, for others to see while it goes on.
std::vector<std::byte> Trainer::report_of(Rank rank) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const auto index = static_cast<std::size_t>(rank);
  ByteWriter writer;
  writer.put(bytes_sent_[index].load(kRelaxed));
  writer.put(ledger_->account(rank).live_applications());
  writer.put(ledger_->account(rank).live_staleness());
  if (roles_.is_worker(rank)) {
    const Counters& counters = workers_[index]->counters;
    writer.put(counters.steps.load(kRelaxed));
    writer.put(counters.samples.load(kRelaxed));
    writer.put(counters.skipped.load(kRelaxed));
    writer.put(counters.epoch.load(kRelaxed));
    writer.put(counters.epoch_loss_sum.load(kRelaxed));
    writer.put(counters.epoch_samples.load(kRelaxed));
  }
  return writer.take();
}

void Trainer::take_report(Rank rank, std::span<const std::byte> bytes) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const auto index = static_cast<std::size_t>(rank);
  ByteReader reader(bytes);
  bytes_sent_[index].store(reader.get<std::uint64_t>(), kRelaxed);
  const auto applications = reader.get<std::uint64_t>();
  ledger_->account(rank).show_live(applications, reader.get<std::uint64_t>());
  if (roles_.is_worker(rank)) {
    Counters& counters = workers_[index]->counters;
    counters.steps.store(reader.get<std::uint64_t>(), kRelaxed);
    counters.samples.store(reader.get<std::uint64_t>(), kRelaxed);
    counters.skipped.store(reader.get<std::uint64_t>(), kRelaxed);
    counters.epoch.store(reader.get<double>(), kRelaxed);
    counters.epoch_loss_sum.store(reader.get<double>(), kRelaxed);
    counters.epoch_samples.store(reader.get<std::uint64_t>(), kRelaxed);
  }
  reader.check_end();
}

// The next batch of a stream of which every worker has a copy: who takes a number computes on the batch of that number.
Result<std::optional<strategy::Assignment>> Trainer::next_of_all(fabric::MeteredEndpoint& endpoint, Worker& worker) {
  const std::optional<strategy::Assignment> none;
  Result<bool> may = may_begin(endpoint, worker, worker.batches->progress().number + 1);
  if (!may) return may.failure();
  if (!*may) return none;
  Result<float> number = spread_->numbers->fetch_add(0, 1);
  if (!number) return number.failure();
  const auto taken = static_cast<std::uint64_t>(*number);
  return taken < kMostNumbers ? stream_->next_numbered(taken) : none;
}

// At rank 0, when nobody takes batches.
void Trainer::deal_numbers_anew() {
  if (!spread_->numbers) return;
  const std::array<float, 1> none{};
  const Status written = spread_->numbers->write(0, none);
  STARLING_CHECK(written.ok(), written.failure().message());  // The window is at home here.
}

// Where the stream stands: at the meeting, where who has taken from it last has told.
data::BatchOrder::Position Trainer::stream_of_all() {
  if (!stream_) return spread_->stream;
  if (stream_->position().number > spread_->stream.number) spread_->stream = stream_->position();
  stream_->seek(spread_->stream);
  return spread_->stream;
}

// After a run that was given up nobody has met; the ranks tell rank 0 how far they were, in a run of its own.
void Trainer::gather_given_up() {
  if (!spread_) return;
  (void)options_.fabric->run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() != 0) return endpoint.send(0, kLastWords, to_payload(last_words(endpoint.rank())));
    for (Rank rank = 1; rank < endpoint.size(); ++rank) {
      Result<fabric::Message> message = endpoint.receive(fabric::from(rank, kLastWords));
      if (message) take_last_words(rank, message->payload.bytes());
    }
    return {};
  });
}

}  // namespace starling::run
