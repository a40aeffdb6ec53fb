// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "starling/base/floats.h"
#include "starling/base/notifier.h"
#include "starling/fabric/sim/sim_endpoint.h"

namespace starling::fabric::sim {
namespace {

const char* name(WaitKind kind) {
  switch (kind) {
    case WaitKind::sleep:
      return "sleep";
    case WaitKind::compute:
      return "compute";
    case WaitKind::poll:
      return "poll";
    case WaitKind::window:
      return "window";
    case WaitKind::none:
    case WaitKind::message:
    case WaitKind::room:
    case WaitKind::opening:
      return "wait";
  }
  return "wait";
}

}  // namespace

struct World::InFlight {
  enum class Kind { message, window_request, window_reply };
  Kind kind = Kind::message;
  Rank from = 0;
  Rank to = 0;
  int incarnation = 0;  // Of the receiver when this was sent: a later one does not get it.
  Message message;      // Of Kind::message.
  std::size_t payload_bytes = 0;
  Network::Transit transit;
  Rank asker = 0;  // Of the window kinds: whose wait this is about, and which of its waits.
  std::uint64_t wait = 0;

  std::unique_ptr<InFlight> duplicate() const {
    auto copy = std::make_unique<InFlight>();
    copy->from = from;
    copy->to = to;
    copy->incarnation = incarnation;
    copy->message = {message.source, message.tag, message.payload.share(), message.sequence};
    copy->payload_bytes = payload_bytes;
    copy->transit = transit;
    return copy;
  }
};

std::string Wait::description() const {
  switch (kind) {
    case WaitKind::message:
      return filter->description();
    case WaitKind::room:
      return fmt::format("room at rank {} for a message", peer);
    case WaitKind::window:
      return fmt::format("window '{}' at rank {}", operation->window->name, peer);
    case WaitKind::opening:
      return fmt::format("rank {} to open a window", peer);
    default:
      return name(kind);
  }
}

RankState::RankState(const SimOptions& options, Rank rank_)
    : rank(rank_),
      mailbox(options.ranks),
      channels(static_cast<std::size_t>(options.ranks)),
      sent_to(static_cast<std::size_t>(options.ranks)),
      delays(options, rank_),
      compute_stream(options.seed, static_cast<std::uint32_t>(rank_), "sim compute") {}

World::World(const SimOptions& options, const Body& body)
    : options_(options),
      body_(body),
      pool_(options.pool_threads == 0 ? usable_cores() : options.pool_threads),
      trace_(options.trace, options.ranks),
      network_(options),
      alive_ranks_(options.ranks) {
  for (Rank rank = 0; rank < options.ranks; ++rank) ranks_.push_back(std::make_unique<RankState>(options, rank));
  report_.outcomes.resize(ranks_.size());
  for (const CrashRule& rule : options.faults.crashes) {
    if (rule.time) schedule({.time = *rule.time, .kind = EventKind::crash, .rank = rule.rank, .rule = &rule});
  }
}

World::~World() = default;

RunReport World::run() {
  for (const auto& rank : ranks_) start_rank(*rank);
  while (running_ranks_ > 0 || pending_restarts_ > 0) {
    if (!ready_.empty()) {
      RankState& next = *ready_.front();
      ready_.pop_front();
      resume(next);
    } else if (live_events_ > 0) {
      std::pop_heap(events_.begin(), events_.end(), later);
      Event event = std::move(events_.back());
      events_.pop_back();
      happen(std::move(event));
    } else {
      report_deadlock();
    }
  }
  return std::move(report_);
}

bool World::later(const Event& a, const Event& b) { return std::pair(a.time, a.number) > std::pair(b.time, b.number); }

void World::schedule(Event event) {
  event.time = std::max(event.time, now_);
  event.number = next_number_++;
  const bool standard = event.kind == EventKind::timer && rank(event.rank).wait.standard;
  if (!standard) ++live_events_;
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end(), later);
}

void World::happen(Event event) {
  now_ = event.time;
  if (event.kind != EventKind::timer) --live_events_;
  switch (event.kind) {
    case EventKind::timer:
      return expire(event);
    case EventKind::head_arrives:
      return arrive(std::move(event.in_flight));
    case EventKind::arrives:
      return deliver(*event.in_flight);
    case EventKind::crash:
      if (rank(event.rank).running && !rank(event.rank).crashed) crash(rank(event.rank), event.rule, "as a fault says");
      return;
    case EventKind::restart:
      --pending_restarts_;
      return start_rank(rank(event.rank));
    case EventKind::departure:
      return depart(event.rank, PeerState::lost);
  }
}

void World::start_rank(RankState& rank) {
  if (rank.crashed) {
    rank.crashed = false;
    ++rank.incarnation;
    if (rank.seen_as != PeerState::alive) {
      rank.seen_as = PeerState::alive;
      ++alive_ranks_;
    }
    trace_.mark(rank.rank, "restart", now_, "");
  }
  rank.running = true;
  ++running_ranks_;
  rank.endpoint = std::make_unique<SimEndpoint>(*this, rank);
  rank.fibre = std::make_unique<Fibre>(options_.stack_bytes, [this, &rank] {
    RankOutcome outcome = run_body(body_, *rank.endpoint);
    if (!rank.crashed) report_.outcomes[static_cast<std::size_t>(rank.rank)] = std::move(outcome);
  });
  ready_.push_back(&rank);
}

void World::resume(RankState& rank) {
  rank.fibre->resume();
  if (rank.fibre->ended()) ended(rank);
}

void World::ended(RankState& rank) {
  rank.fibre.reset();
  rank.endpoint.reset();
  rank.running = false;
  --running_ranks_;
  rank.mailbox.clear();
  std::erase_if(windows_, [&](const auto& window) { return window->home == rank.rank; });
  if (rank.crashed) {
    // There is room again, if only for a later incarnation; the departure is announced when it is detected.
    for (const auto& other : ranks_) {
      if (other->wait.kind == WaitKind::room && other->wait.peer == rank.rank) wake(*other, Wake::signal);
    }
    return;
  }
  const bool finished = report_.outcomes[static_cast<std::size_t>(rank.rank)].kind == RankOutcome::Kind::finished;
  depart(rank.rank, finished ? PeerState::finished : PeerState::lost);
}

Wake World::block(RankState& rank, Wait wait, Time until) {
  wait.number = next_number_++;
  wait.since = now_;
  rank.wait = wait;
  schedule({.time = until, .kind = EventKind::timer, .rank = rank.rank, .wait = wait.number});
  if (wait.kind == WaitKind::window) ask(rank);
  rank.fibre->yield();
  if (trace_.on() && now_ > wait.since) {
    trace_.slice(rank.rank, name(wait.kind), wait.since, now_, wait.standard || wait.peer != kAnyRank ? wait.description() : "");
  }
  if (rank.crashed) throw RankUnwind{};
  return rank.wait.wake;
}

bool World::unwinding(const RankState& rank) {
  if (!rank.crashed) return false;
  if (std::uncaught_exceptions() == 0) throw RankUnwind{};
  return true;
}

void World::wake(RankState& rank, Wake reason) {
  if (!rank.wait.standard && reason != Wake::expired) --live_events_;  // Its timer no longer matters.
  rank.wait.kind = WaitKind::none;
  rank.wait.wake = reason;
  ready_.push_back(&rank);
}

void World::expire(const Event& timer) {
  RankState& waiter = rank(timer.rank);
  if (waiter.wait.kind == WaitKind::none || waiter.wait.number != timer.wait) return;  // It was woken before.
  if (!waiter.wait.standard) --live_events_;
  if (waiter.wait.kind == WaitKind::compute) pool_.finish(*waiter.wait.job);
  wake(waiter, Wake::expired);
}

double World::compute_seconds(RankState& rank, double units) {
  double seconds = options_.compute.time_per_unit.sample(rank.compute_stream) * units;
  for (const SpeedRule& rule : options_.compute.speeds) {
    if (rule.ranks.contains(rank.rank)) seconds /= rule.factor;
  }
  for (const SlowRule& rule : options_.faults.slow) {
    if (rule.ranks.contains(rank.rank) && rule.interval.contains(now_)) seconds *= rule.times;
  }
  return seconds;
}

void World::compute(RankState& rank, double units, FunctionRef<void()> work) {
  WorkPool::Job job(work);
  pool_.submit(job);
  Wait wait;
  wait.kind = WaitKind::compute;
  wait.job = &job;
  block(rank, wait, now_ + from_seconds(compute_seconds(rank, units)));
  if (const std::exception_ptr error = pool_.finish(job)) std::rethrow_exception(error);
}

void World::pass(RankState& rank, std::string_view point) {
  const Duration delay = rank.delays.draw(point);
  if (delay > Duration::zero()) {
    Wait wait;
    wait.kind = WaitKind::sleep;
    block(rank, wait, now_ + delay);
  }
  if (options_.faults.crashes.empty()) return;
  auto passes = rank.passes.find(point);
  if (passes == rank.passes.end()) passes = rank.passes.emplace(point, 0).first;
  ++passes->second;
  for (const CrashRule& rule : options_.faults.crashes) {
    if (rule.rank != rank.rank || rule.point != point || rule.count != passes->second) continue;
    crash(rank, &rule, fmt::format("at pass {} of '{}'", rule.count, point));
    throw RankUnwind{};
  }
}

bool World::has_room(const RankState& sender, Rank to, std::size_t payload_bytes) const {
  const RankState& receiver = rank(to);
  const Channel& channel = receiver.channels[static_cast<std::size_t>(sender.rank)];
  const std::size_t messages = channel.messages_in_flight + receiver.mailbox.messages_from(sender.rank);
  const std::size_t bytes = channel.bytes_in_flight + receiver.mailbox.bytes_from(sender.rank);
  return messages == 0 || (messages < options_.queue_messages && bytes + payload_bytes <= options_.queue_bytes);
}

void World::send(RankState& sender, Rank to, Tag tag, Payload payload) {
  auto in_flight = std::make_unique<InFlight>();
  in_flight->from = sender.rank;
  in_flight->to = to;
  in_flight->incarnation = rank(to).incarnation;
  in_flight->payload_bytes = payload.size_bytes();
  in_flight->message = {sender.rank, tag, std::move(payload), sender.sent_to[static_cast<std::size_t>(to)]++};
  ++sender.traffic.messages_sent;
  sender.traffic.bytes_sent += in_flight->payload_bytes;
  trace_.sent(in_flight->message, to, now_);
  launch(std::move(in_flight), false);
}

void World::launch(std::unique_ptr<InFlight> in_flight, bool reliable) {
  in_flight->transit = network_.send(in_flight->from, in_flight->to, in_flight->payload_bytes, now_, reliable);
  if (in_flight->transit.lost) {
    trace_.mark(in_flight->from, "drop", now_, fmt::format("message {} to rank {}", in_flight->message.sequence, in_flight->to));
    return;
  }
  if (in_flight->kind == InFlight::Kind::message) {
    RankState& receiver = rank(in_flight->to);
    Channel& channel = receiver.channels[static_cast<std::size_t>(in_flight->from)];
    const unsigned copies = in_flight->transit.duplicated ? 2 : 1;
    channel.messages_in_flight += copies;
    channel.bytes_in_flight += copies * in_flight->payload_bytes;
    receiver.messages_in_flight += copies;
  }
  if (in_flight->transit.first_byte == kEndOfTime) return;  // Behind a partition that never ends.
  const Time first_byte = in_flight->transit.first_byte;
  std::unique_ptr<InFlight> duplicate;
  if (in_flight->transit.duplicated) {
    trace_.mark(in_flight->from, "duplicate", now_, fmt::format("message {} to rank {}", in_flight->message.sequence, in_flight->to));
    duplicate = in_flight->duplicate();
  }
  schedule({.time = first_byte, .kind = EventKind::head_arrives, .in_flight = std::move(in_flight)});
  if (duplicate) schedule({.time = first_byte, .kind = EventKind::head_arrives, .in_flight = std::move(duplicate)});
}

void World::arrive(std::unique_ptr<InFlight> in_flight) {
  const Time whole = network_.take_in(in_flight->from, in_flight->to, in_flight->transit);
  if (whole <= now_) return deliver(*in_flight);
  schedule({.time = whole, .kind = EventKind::arrives, .in_flight = std::move(in_flight)});
}

void World::deliver(InFlight& in_flight) {
  RankState& receiver = rank(in_flight.to);
  const bool there = receiver.running && !receiver.crashed && receiver.incarnation == in_flight.incarnation;
  if (in_flight.kind != InFlight::Kind::message) {
    RankState& asker = rank(in_flight.asker);
    const bool awaited = asker.wait.kind == WaitKind::window && asker.wait.number == in_flight.wait;
    if (!there || !awaited) return;
    return answer(in_flight, asker);
  }
  Channel& channel = receiver.channels[static_cast<std::size_t>(in_flight.from)];
  --channel.messages_in_flight;
  channel.bytes_in_flight -= in_flight.payload_bytes;
  --receiver.messages_in_flight;
  if (!there) {
    trace_.mark(in_flight.to, "discard", now_, fmt::format("message {} from rank {}", in_flight.message.sequence, in_flight.from));
    wake_sender(in_flight.from, in_flight.to);
    return;
  }
  const Tag tag = in_flight.message.tag;
  receiver.mailbox.push(std::move(in_flight.message));
  if (receiver.wait.kind != WaitKind::message) return;
  if (receiver.wait.filter->matches(in_flight.from, tag) || nobody_can_send(receiver, *receiver.wait.filter)) {
    wake(receiver, Wake::signal);
  }
}

void World::wake_sender(Rank sender, Rank receiver) {
  RankState& state = rank(sender);
  if (state.wait.kind == WaitKind::room && state.wait.peer == receiver) wake(state, Wake::signal);
}

std::optional<Message> World::take(RankState& rank, const Filter& filter) {
  std::optional<Message> message = rank.mailbox.take(filter);
  if (!message) return message;
  ++rank.traffic.messages_received;
  rank.traffic.bytes_received += message->payload.size_bytes();
  trace_.received(*message, rank.rank, now_);
  wake_sender(message->source, rank.rank);
  return message;
}

bool World::nobody_can_send(const RankState& rank, const Filter& filter) const {
  if (filter.source == kAnyRank) return alive_ranks_ <= 1 && rank.messages_in_flight == 0;
  const Channel& channel = rank.channels[static_cast<std::size_t>(filter.source)];
  return this->rank(filter.source).seen_as != PeerState::alive && channel.messages_in_flight == 0;
}

std::shared_ptr<WindowMemory> World::find_window(std::string_view name, Rank home) const {
  const auto found =
      std::find_if(windows_.begin(), windows_.end(), [&](const auto& window) { return window->name == name && window->home == home; });
  return found == windows_.end() ? nullptr : *found;
}

std::shared_ptr<WindowMemory> World::create_window(std::string_view name, std::size_t size, Rank home) {
  auto window = std::make_shared<WindowMemory>();
  window->name = name;
  window->home = home;
  window->floats.resize(size);
  windows_.push_back(window);
  for (const auto& other : ranks_) {
    if (other->wait.kind == WaitKind::opening && other->wait.peer == home) wake(*other, Wake::signal);
  }
  return window;
}

void WindowOperation::carry_out() {
  float* memory = window->floats.data() + offset;
  if (kind == Kind::read) {
    std::copy_n(memory, count, target);
  } else if (kind == Kind::write) {
    std::copy_n(source, count, memory);
  } else {
    add_floats({memory, count}, {source, count});
  }
}

void World::ask(const RankState& asker) {
  const WindowOperation& operation = *asker.wait.operation;
  auto request = std::make_unique<InFlight>();
  request->kind = InFlight::Kind::window_request;
  request->from = asker.rank;
  request->to = operation.window->home;
  request->incarnation = rank(request->to).incarnation;
  request->payload_bytes = operation.kind == WindowOperation::Kind::read ? 0 : operation.count * sizeof(float);
  request->asker = asker.rank;
  request->wait = asker.wait.number;
  launch(std::move(request), true);
}

// A request has reached the window's home, or the reply has come back.
void World::answer(const InFlight& in_flight, RankState& asker) {
  WindowOperation& operation = *asker.wait.operation;
  if (in_flight.kind == InFlight::Kind::window_reply) {
    operation.done = true;
    return wake(asker, Wake::signal);
  }
  // A home that was restarted knows nothing of its former windows. The asker learns of the crash when it is detected.
  if (find_window(operation.window->name, in_flight.to) != operation.window) return;
  operation.carry_out();
  auto reply = std::make_unique<InFlight>();
  reply->kind = InFlight::Kind::window_reply;
  reply->from = in_flight.to;
  reply->to = in_flight.from;
  reply->incarnation = asker.incarnation;
  reply->payload_bytes = operation.kind == WindowOperation::Kind::read ? operation.count * sizeof(float) : 0;
  reply->asker = asker.rank;
  reply->wait = in_flight.wait;
  launch(std::move(reply), true);
}

void World::crash(RankState& rank, const CrashRule* rule, const std::string& reason) {
  rank.crashed = true;
  report_.outcomes[static_cast<std::size_t>(rank.rank)] = {
      rank.rank, RankOutcome::Kind::crashed, fmt::format("a fault crashed it at {}, {}", format_duration(now_), reason), {}};
  trace_.mark(rank.rank, "crash", now_, reason);
  if (rank.wait.kind == WaitKind::compute) pool_.finish(*rank.wait.job);
  if (rank.wait.kind != WaitKind::none) wake(rank, Wake::signal);
  schedule({.time = now_ + options_.faults.detection, .kind = EventKind::departure, .rank = rank.rank});
  if (rule != nullptr && rule->restart_after) {
    ++pending_restarts_;
    schedule({.time = now_ + *rule->restart_after, .kind = EventKind::restart, .rank = rank.rank});
  }
}

void World::depart(Rank gone, PeerState state) {
  RankState& departed = rank(gone);
  departures_.push_back({gone, state, now_});
  // A rank that was restarted before its crash was noticed has departed all the same, but is there.
  const bool is_there = departed.running && !departed.crashed;
  if (!is_there && departed.seen_as == PeerState::alive) {
    departed.seen_as = state;
    --alive_ranks_;
  }
  for (const auto& other : ranks_) {
    const Wait& wait = other->wait;
    const bool concerns = wait.kind == WaitKind::message ? wait.filter->departures_seen.has_value() || nobody_can_send(*other, *wait.filter)
                          : wait.kind == WaitKind::room || wait.kind == WaitKind::window || wait.kind == WaitKind::opening
                              ? wait.peer == gone
                              : false;
    if (concerns) wake(*other, Wake::signal);
  }
}

void World::report_deadlock() {
  const bool again = deadlock_time_ == now_;
  deadlock_time_ = now_;
  constexpr int kListed = 20;
  int listed = 0;
  std::string text = fmt::format("deadlock at {}: {} ranks wait and nothing is under way\n", format_duration(now_), running_ranks_);
  for (const auto& rank : ranks_) {
    if (!rank->running) continue;
    if (++listed <= kListed) {
      text += fmt::format("  rank {} waits since {} for {}\n", rank->rank, format_duration(rank->wait.since), rank->wait.description());
    }
  }
  if (listed > kListed) text += fmt::format("  and {} more\n", listed - kListed);
  if (deadlock_.empty()) deadlock_ = text;
  for (const auto& rank : ranks_) {
    if (!rank->running) continue;
    // A rank that answers a deadlock with the same wait again would do so for ever.
    if (again) {
      crash(*rank, nullptr, "because it waited again after a deadlock");
    } else {
      wake(*rank, Wake::deadlock);
    }
  }
}

}  // namespace starling::fabric::sim
