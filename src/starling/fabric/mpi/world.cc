// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "starling/base/error.h"
#include "starling/fabric/mpi/call.h"
#include "starling/fabric/mpi/speaking.h"
#include "starling/fabric/mpi/start_limit.h"

namespace starling::fabric::mpi {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPulse = 250ms;
constexpr Duration kLazy = 10ms;
// Even where the time-out is shorter: a machine that is busy may leave a process alone for so long.
constexpr Duration kShortestSilence = 3s;
// How long those who have failed wait for what the others have to say. The first waits less, because it is the one that speaks.
constexpr Duration kLastWords = 3s;
constexpr Duration kLastWordsOfOthers = 6s;

// What a rank says when it departs.
struct Farewell {
  PeerState state;
  RankOutcome::Kind kind;
  std::uint64_t library_calls;
};

// A payload of one struct, with a text behind it.
template <class T>
Payload packed(const T& value, std::string_view text) {
  Payload payload = Payload::allocate(sizeof(T) + text.size());
  const std::span<std::byte> bytes = payload.writable();
  std::memcpy(bytes.data(), &value, sizeof(T));
  if (!text.empty()) std::memcpy(bytes.data() + sizeof(T), text.data(), text.size());
  return payload;
}

template <class T>
std::pair<T, std::string> unpacked(const Payload& payload) {
  const std::span<const std::byte> bytes = payload.bytes();
  STARLING_CHECK(bytes.size() >= sizeof(T), std::string("a message of the fabric is too short"));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return {value, std::string(reinterpret_cast<const char*>(bytes.data()) + sizeof(T), bytes.size() - sizeof(T))};
}

// What a process says again and again: how far its rank has got, and how many runs it has begun.
struct Pulse {
  std::uint64_t progress;
  std::uint64_t begun;
};

struct WindowNote {
  std::uint64_t floats;
  MemoryFile::Place place;
  std::uint64_t address;
};

}  // namespace

World::World(const Members& members, const FabricOptions& options, const MpiOptions& mpi_options, std::uint64_t number,
             Duration start_timeout, std::function<void(const std::string&)> unreachable)
    : members_(members),
      options_(options),
      mpi_options_(mpi_options),
      unreachable_(std::move(unreachable)),
      silence_(std::max(options.timeout, kShortestSilence)),
      start_timeout_(start_timeout),
      mailbox_(members.size),
      peers_(static_cast<std::size_t>(members.size)),
      states_(static_cast<std::size_t>(members.size), PeerState::alive) {
  await_everybody();
  try {
    make_shared_parts(number);
  } catch (...) {
    abandon();
    throw;
  }
  for (Peer& one : peers_) one.heard = Clock::now();
  next_pulse_ = Clock::now();
  watching_ = true;
  keeper_ = std::thread([this] { keep_going(); });
}

World::~World() {
  // What goes wrong in this process alone must not wait for the others, who do not know of it.
  if (std::uncaught_exceptions() > 0) broken_ = true;
  // Until all are here, all show that they live. There is no limit, because the first may have a lot to do after the last run: it writes
  // files, and shows a page for as long as somebody looks at it.
  if (!broken_) meet_all(kEndOfTime - now());
  if (!broken_) fall_silent();
  stop_keeping();
  if (broken_) {
    abandon();
    return;
  }
  const StartLimit limit(start_timeout_ + speaking_delay(rank()), [this] { unreachable_("not all ranks have taken the fabric apart"); });
  if (one_sided_ != MPI_WIN_NULL) {
    MPI_Win_unlock_all(one_sided_);
    MPI_Win_free(&one_sided_);
  }
  post_.reset();
  host_memory_.reset();
}

// All are here, so nobody needs to show any more that it lives. When everybody has nothing under way, and all know that, MPI has no use for
// memory that was sent.
void World::fall_silent() {
  {
    const Lock lock(mutex_);
    watching_ = false;
  }
  const Time limit = later(now(), start_timeout_ + speaking_delay(rank()));
  if (wait([&] { return post_->all_sent(); }, limit, true)) {
    meet_all(limit - now());
  } else {
    broken_ = true;
  }
  if (broken_) unreachable_(fmt::format("not all ranks have left the fabric within {}", format_duration(start_timeout_)));
}

void World::stop_keeping() {
  {
    const std::lock_guard lock(stop_mutex_);
    stops_ = true;
  }
  stop_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

// Where the processes do not come together again, what they share cannot be freed without waiting for the others, and MPI may use the rest
// until the process ends, which is soon.
void World::abandon() {
  static_cast<void>(host_memory_.release());
  static_cast<void>(post_.release());
  static_cast<void>(kept_.release());
}

void World::begin_run() {
  STARLING_CHECK(!broken_, std::string("a fabric that has lost a process cannot run again"));
  {
    const Lock lock(mutex_);
    begun_ = run_ + 1;
  }
  meet_all(start_timeout_);
  if (broken_) throw std::runtime_error(late_ranks());
  const Lock lock(mutex_);
  start_ = Clock::now();
}

// Who has not come to the beginning of a run, as far as this process knows: the first hears of all.
std::string World::late_ranks() {
  const Lock lock(mutex_);
  std::vector<Rank> late;
  for (Rank other = 1; other < size() && rank() == 0; ++other) {
    if (peer(other).begun < begun_) late.push_back(other);
  }
  const std::string who = late.empty() ? "not all ranks have" : fmt::format("rank {} has not", fmt::join(late, ", "));
  return fmt::format("{} come to the beginning of the run, though their processes are there", who);
}

// Everybody comes; meanwhile messages go on being received. A rank that is lost is noticed by the other thread; who does not come in time
// breaks the world.
void World::meet_all(Duration limit) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const Lock lock(mutex_);
    call("MPI_Ibarrier", MPI_Ibarrier(members_.all, &request));
  }
  const auto met = [&] {
    int done = 0;
    call("MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    return done == 1;
  };
  if (!wait(met, later(now(), limit), true)) broken_ = true;
}

RunReport World::end_run(RankOutcome outcome) {
  const bool finished = outcome.kind == RankOutcome::Kind::finished;
  {
    const Lock lock(mutex_);
    progress_ = nullptr;
    const Farewell farewell{finished ? PeerState::finished : PeerState::lost, outcome.kind, library_calls_};
    for (Rank other = 0; other < size(); ++other) {
      if (other != rank()) post(other, Kind::departed, 0, packed(farewell, outcome.message));
    }
    outcomes_.push_back(std::move(outcome));
  }
  const auto all_are_here = [&] { return everybody_departed() && post_->all_sent(); };
  const auto one_failed = [&] {
    return std::any_of(outcomes_.begin(), outcomes_.end(), [](const auto& one) { return one.kind != RankOutcome::Kind::finished; });
  };
  wait([&] { return all_are_here() || one_failed(); }, kEndOfTime);
  if (!wait(all_are_here, now() + (rank() == 0 ? kLastWords : kLastWordsOfOthers))) broken_ = true;

  RunReport report;
  {
    const Lock lock(mutex_);
    report.outcomes = std::move(outcomes_);
    outcomes_.clear();
    for (Rank other = 0; other < size(); ++other) {
      const bool known = std::any_of(report.outcomes.begin(), report.outcomes.end(), [&](const auto& one) { return one.rank == other; });
      if (!known) report.outcomes.push_back({other, RankOutcome::Kind::failed, fmt::format("has not ended{}", place_of(other))});
    }
    std::sort(report.outcomes.begin(), report.outcomes.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    // Everything of this run has arrived, so what comes after this belongs to the next.
    mailbox_.clear();
    windows_.clear();
    departures_.clear();
    states_.assign(states_.size(), PeerState::alive);
    if (members_.number_here[static_cast<std::size_t>(rank())] == 0) host_memory_->clear_sites();
    library_calls_ = 0;
    ++run_;
    for (Peer& one : peers_) one = {.begun = one.begun, .heard = one.heard};
  }
  // From here on nothing looks after MPI, so that it does not touch what the rank frees.
  if (broken_) stop_keeping();
  if (!broken_) meet_all(kEndOfTime - now());
  return report;
}

void World::nap(std::uint32_t ticket, Clock::time_point begin, Time limit, bool busy) {
  constexpr Duration kSpin = 50us;
  constexpr Duration kBusySpin = 300us;
  const Duration waited = Clock::now() - begin;
  if (spin() && waited < (busy ? kBusySpin : kSpin)) {
    for (int i = 0; i < 16; ++i) spin_pause();
    return;
  }
  // Who sends from this host rings; MPI's own messages and those of other hosts do not, and have to be looked for.
  Duration nap = members_.one_host() ? Duration(1ms) : std::clamp<Duration>(waited / 8, 20us, 200us);
  if (busy) nap = std::min<Duration>(nap, 20us);
  if (limit != kEndOfTime) nap = std::min(nap, limit - now());
  host_memory_->bell(members_.number_here[static_cast<std::size_t>(rank())]).wait(ticket, nap);
}

// How often MPI has to be looked after while the rank computes. One-sided operations of others, and large messages between hosts, go on
// only then; inside a host a message is taken at one go when the rank asks for it. Every look costs the rank some microseconds.
Duration World::keeping_interval() const {
  if (one_sided_ != MPI_WIN_NULL && !windows_.empty()) return 100us;
  if (members_.one_host()) return post_->is_busy() ? Duration(500us) : kLazy;
  return post_->is_busy() ? 100us : 1ms;
}

// The other thread.
void World::keep_going() {
  for (Duration interval = kLazy;;) {
    {
      std::unique_lock lock(stop_mutex_);
      if (stop_.wait_for(lock, interval, [this] { return stops_; })) return;
    }
    std::string message;
    try {
      message = keep();
    } catch (const std::exception& error) {
      message = error.what();
    }
    if (!message.empty()) return unreachable_(message);
    interval = next_interval_;
  }
}

// One look. Returns why the job has to end, if it has to.
std::string World::keep() {
  Lock lock(mutex_, std::defer_lock);
  // The rank has the lock while MPI carries out a one-sided operation, which never ends if the other process hangs.
  const Clock::time_point begin = Clock::now();
  while (!lock.try_lock()) {
    if (Clock::now() - begin > kPulse) return hanging_operation();
    std::this_thread::sleep_for(100us);
  }
  const Clock::time_point now = Clock::now();
  const bool waits = rank_waits_.load(std::memory_order_relaxed);
  if (!waits || now >= next_pulse_) progress();
  next_interval_ = waits ? kLazy : keeping_interval();
  return pulse(now);
}

void World::keep_in_touch() {
  const Clock::time_point now = Clock::now();
  if (now < next_pulse_) return;
  progress();
  const std::string message = pulse(now);
  if (!message.empty()) unreachable_(message);
}

// Tells others that this process is there, when it is time to. Returns why the job has to end, if it has to.
std::string World::pulse(Clock::time_point now) {
  if (!watching_ || now < next_pulse_) return "";
  // If this process itself has stood still, as in a job that was suspended, others may have too.
  if (now - next_pulse_ > 1s) {
    for (Peer& one : peers_) one.heard = now;
  }
  next_pulse_ = now + kPulse;
  send_pulses();
  return silent_rank(now);
}

std::string World::hanging_operation() const {
  const Rank home = operation_at_.load();
  if (home == kAnyRank) return "";
  const Duration waited = Clock::now().time_since_epoch() - operation_since_.load();
  // Meanwhile this process sends no pulses, and is silent itself. It knows who is to blame, so it speaks before those who only hear
  // nothing.
  const Duration limit = std::max<Duration>(silence_ - 2 * kPulse, kShortestSilence * 4 / 5);
  return waited > limit + speaking_delay(rank() < home ? rank() : rank() - 1) ? silence_text(home, waited) : "";
}

void World::progress() {
  post_->progress(arrivals_);
  if (arrivals_.empty()) return;
  // What cannot be accepted must not be accepted again.
  std::vector<Arrival> arrived;
  arrived.swap(arrivals_);
  for (Arrival& arrival : arrived) accept(arrival);
  arrived.clear();
  arrivals_.swap(arrived);  // Its memory is used again.
}

void World::accept(Arrival& arrival) {
  Peer& sender = peer(arrival.message.source);
  sender.heard = Clock::now();
  if (arrival.taken.run == run_ && arrival.taken.messages > sender.taken.messages) {
    sender.taken = arrival.taken;
    sender.asked = false;
  }
  switch (arrival.kind) {
    case Kind::message:
      mailbox_.push(std::move(arrival.message));
      break;
    case Kind::taken:
      break;
    case Kind::taken_wanted:
      sender.wants = true;
      if (sender.given.messages > sender.told.messages) tell_taken(arrival.message.source);
      break;
    case Kind::departed:
      accept_departure(arrival);
      break;
    case Kind::window_opened:
      accept_window(arrival);
      break;
    case Kind::pulse: {
      const Pulse pulse = unpacked<Pulse>(arrival.message.payload).first;
      sender.progress = pulse.progress;
      sender.begun = pulse.begun;
      if (arrival.message.source == 0) others_progress_ = pulse.progress;
      break;
    }
  }
}

void World::accept_departure(const Arrival& arrival) {
  auto [farewell, text] = unpacked<Farewell>(arrival.message.payload);
  const Rank source = arrival.message.source;
  states_[static_cast<std::size_t>(source)] = farewell.state;
  peer(source).library_calls = farewell.library_calls;
  departures_.push_back({source, farewell.state, now()});
  outcomes_.push_back({source, farewell.kind, std::move(text)});
}

void World::accept_window(const Arrival& arrival) {
  auto [note, name] = unpacked<WindowNote>(arrival.message.payload);
  windows_.push_back(
      {.name = std::move(name), .home = arrival.message.source, .floats = note.floats, .place = note.place, .address = note.address});
}

void World::announce_window(OpenedWindow window) {
  const WindowNote note{window.floats, window.place, window.address};
  for (Rank other = 0; other < size(); ++other) {
    if (other != rank()) post(other, Kind::window_opened, 0, packed(note, window.name));
  }
  windows_.push_back(std::move(window));
}

const OpenedWindow* World::find_window(std::string_view name, Rank home) const {
  const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const auto& one) { return one.home == home && one.name == name; });
  return found == windows_.end() ? nullptr : &*found;
}

void World::post(Rank to, Kind kind, Tag tag, Payload payload, std::uint64_t sequence) {
  Peer& receiver = peer(to);
  receiver.told = receiver.given;
  post_->send(to, kind, tag, std::move(payload), sequence, {receiver.given.messages, receiver.given.bytes, run_});
  if (members_.is_here(to)) host_memory_->bell(members_.number_here[static_cast<std::size_t>(to)]).ring();
}

Taken World::unread(Rank at) const {
  if (at == rank()) return {mailbox_.messages_from(at), mailbox_.bytes_from(at), run_};
  const Peer& receiver = peer(at);
  return {receiver.sent.messages - receiver.taken.messages, receiver.sent.bytes - receiver.taken.bytes, run_};
}

bool World::has_room(Rank to, std::size_t payload_bytes) const {
  const Taken waiting = unread(to);
  return waiting.messages == 0 || (waiting.messages < options_.queue_messages && waiting.bytes + payload_bytes <= options_.queue_bytes);
}

void World::send(Rank to, Tag tag, Payload payload) {
  Peer& receiver = peer(to);
  const std::uint64_t sequence = receiver.sequence++;
  if (to == rank()) {
    mailbox_.push({to, tag, std::move(payload), sequence});
    return;
  }
  ++receiver.sent.messages;
  receiver.sent.bytes += payload.total_bytes();
  post(to, Kind::message, tag, std::move(payload), sequence);
}

void World::ask_for_room(Rank to) {
  Peer& receiver = peer(to);
  if (to == rank() || receiver.asked || state(to) != PeerState::alive) return;
  receiver.asked = true;
  post(to, Kind::taken_wanted, 0, Payload());
}

std::optional<Message> World::take(const Filter& filter) {
  std::optional<Message> message = mailbox_.take(filter);
  if (!message || message->source == rank()) return message;
  Peer& sender = peer(message->source);
  ++sender.given.messages;
  sender.given.bytes += message->payload.total_bytes();
  const bool many = sender.given.messages - sender.told.messages >= std::max<std::size_t>(1, options_.queue_messages / 2);
  const bool much = sender.given.bytes - sender.told.bytes >= options_.queue_bytes / 2;
  if ((sender.wants || many || much) && state(message->source) == PeerState::alive) tell_taken(message->source);
  return message;
}

void World::tell_taken(Rank to) {
  peer(to).wants = false;
  post(to, Kind::taken, 0, Payload());
}

void World::show_progress(const std::atomic<std::uint64_t>* counter) {
  const Lock lock(mutex_);
  progress_ = counter;
}

std::uint64_t World::others_progress() {
  const Lock lock(mutex_);
  return others_progress_;
}

// All tell the first, and the first tells each what all others have told.
void World::send_pulses() {
  const std::uint64_t own = progress_ == nullptr ? 0 : progress_->load(std::memory_order_relaxed);
  if (rank() != 0) return post(0, Kind::pulse, 0, packed(Pulse{own, begun_}, ""));
  std::uint64_t sum = own;
  for (const Peer& one : peers_) sum += one.progress;
  others_progress_ = sum - own;
  for (Rank other = 1; other < size(); ++other) post(other, Kind::pulse, 0, packed(Pulse{sum - peer(other).progress, begun_}, ""));
}

std::string World::place_of(Rank rank) const {
  return members_.one_host() ? "" : fmt::format(" on {}", members_.host_names[static_cast<std::size_t>(rank)]);
}

std::string World::silence_text(Rank rank, Duration time) const {
  return fmt::format("rank {}{} has not been heard of for {}: its process has ended, hangs or cannot be reached", rank, place_of(rank),
                     format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(time)));
}

// The first listens to all, and all to the first. The others wait a little longer, each longer than the one before, so that one speaks.
std::string World::silent_rank(Clock::time_point now) const {
  const auto since = [&](Rank other) { return std::chrono::duration_cast<Duration>(now - peer(other).heard); };
  if (rank() != 0) return since(0) > silence_ + speaking_delay(rank()) ? silence_text(0, since(0)) : "";
  // Who waits inside MPI for another is silent too, and as a rule has fallen silent later.
  Rank longest = kAnyRank;
  for (Rank other = 1; other < size(); ++other) {
    // Who has failed says why, and ends the job itself.
    if (state(other) == PeerState::lost) continue;
    if (longest == kAnyRank || since(other) > since(longest)) longest = other;
  }
  return longest != kAnyRank && since(longest) > silence_ ? silence_text(longest, since(longest)) : "";
}

}  // namespace starling::fabric::mpi
