// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

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
    case WaitKind::realigning:
      return "wait";
  }
  return "wait";
}

}  // namespace

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
    case WaitKind::realigning:
      return fmt::format("all ranks to come to realignment {}", realignment);
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
      compute_stream(options.seed, static_cast<std::uint32_t>(rank_), "sim compute") {
  compute_stream.seek(realigned_position(options.start_number));
}

World::World(const SimOptions& options, const Body& body)
    : options_(options),
      body_(body),
      pool_(options.pool_threads == 0 ? usable_cores() : options.pool_threads),
      trace_(options.trace, options.ranks),
      network_(options),
      now_(options.start_time),
      alive_ranks_(options.ranks) {
  for (Rank rank = 0; rank < options.ranks; ++rank) ranks_.push_back(std::make_unique<RankState>(options, rank));
  report_.outcomes.resize(ranks_.size());
  for (const CrashRule& rule : options.faults.crashes) {
    if (rule.time && *rule.time >= now_) schedule({.time = *rule.time, .kind = EventKind::crash, .rank = rule.rank, .rule = &rule});
  }
}

World::~World() = default;

RunReport World::run() {
  try {
    for (const auto& rank : ranks_) start_rank(*rank);
    while (running_ranks_ > 0 || pending_restarts_ > 0) {
      if (!ready_.empty()) {
        RankState& next = *ready_.front();
        ready_.pop_front();
        resume(next);
      } else if (live_events_ > 0) {
        std::pop_heap(events_.begin(), events_.end(), happens_later);
        Event event = std::move(events_.back());
        events_.pop_back();
        happen(std::move(event));
      } else {
        report_deadlock();
      }
    }
  } catch (...) {
    abandon();
    throw;
  }
  return std::move(report_);
}

// Something outside the ranks went wrong, such as writing the trace: their stacks are unwound, as a suspended fibre cannot be destroyed.
void World::abandon() {
  for (const auto& rank : ranks_) {
    if (!rank->fibre) continue;
    rank->crashed = true;
    if (rank->wait.kind == WaitKind::compute) pool_.finish(*rank->wait.job);
    rank->wait.kind = WaitKind::none;
    while (!rank->fibre->ended()) rank->fibre->resume();
  }
}

bool World::happens_later(const Event& a, const Event& b) { return std::pair(a.time, a.number) > std::pair(b.time, b.number); }

void World::schedule(Event event) {
  event.time = std::max(event.time, now_);
  event.number = next_number_++;
  if (event.kind != EventKind::timer || rank(event.rank).wait.ends_by_itself()) ++live_events_;
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end(), happens_later);
}

void World::happen(Event event) {
  if (is_stale(event)) {
    --stale_timers_;
    return;
  }
  now_ = event.time;
  if (event.kind != EventKind::timer) --live_events_;
  switch (event.kind) {
    case EventKind::timer:
      return expire(event);
    case EventKind::head_arrives:
      event.time = network_.take_in(event.in_flight->from, event.in_flight->to, event.in_flight->transit);
      event.kind = EventKind::arrives;
      return schedule(std::move(event));
    case EventKind::arrives:
      return deliver(*event.in_flight);
    case EventKind::crash:
      if (rank(event.rank).running && !rank(event.rank).crashed) crash(rank(event.rank), event.rule, "as a fault says");
      return;
    case EventKind::restart:
      --pending_restarts_;
      return start_rank(rank(event.rank));
    case EventKind::departure:
      return depart(event.rank, PeerState::lost, event.incarnation);
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
  for (const auto& window : windows_) {
    if (window->home == rank.rank) window->open = false;
  }
  std::erase_if(windows_, [](const auto& window) { return !window->open; });
  realign_if_all_are_there();
  if (rank.crashed) {
    // There is room again, if only for a later incarnation; the departure is announced when it is detected.
    for (const auto& other : ranks_) wake_sender(other->rank, rank.rank);
    return;
  }
  const bool finished = report_.outcomes[static_cast<std::size_t>(rank.rank)].kind == RankOutcome::Kind::finished;
  depart(rank.rank, finished ? PeerState::finished : PeerState::lost, rank.incarnation);
}

Wake World::block(RankState& rank, Wait wait, Time until) {
  wait.number = next_number_++;
  wait.since = now_;
  wait.until = until;
  rank.wait = wait;
  if (until < kEndOfTime) schedule({.time = until, .kind = EventKind::timer, .rank = rank.rank, .wait = wait.number});
  if (wait.kind == WaitKind::window) ask(rank);
  if (wait.kind == WaitKind::realigning) realign_if_all_are_there();
  rank.fibre->yield();
  if (trace_.on() && now_ > wait.since) {
    trace_.slice(rank.rank, name(wait.kind), wait.since, now_, wait.standard || wait.peer != kAnyRank ? wait.description() : "");
  }
  return unwinding(rank) ? Wake::crashed : rank.wait.wake;
}

bool World::unwinding(const RankState& rank) {
  if (!rank.crashed) return false;
  if (std::uncaught_exceptions() == 0) throw RankUnwind{};
  return true;
}

void World::wake(RankState& rank, Wake reason) {
  if (reason != Wake::expired && rank.wait.until < kEndOfTime) {  // Its timer no longer matters.
    if (rank.wait.ends_by_itself()) --live_events_;
    ++stale_timers_;
  }
  rank.wait.kind = WaitKind::none;
  rank.wait.wake = reason;
  ready_.push_back(&rank);
  // Most waits end before their deadline; their timers are swept out before they outnumber everything else.
  if (stale_timers_ > 1000 && stale_timers_ > events_.size() / 2) {
    std::erase_if(events_, [this](const Event& event) { return is_stale(event); });
    std::make_heap(events_.begin(), events_.end(), happens_later);
    stale_timers_ = 0;
  }
}

bool World::is_stale(const Event& event) const {
  if (event.kind != EventKind::timer) return false;
  const Wait& wait = rank(event.rank).wait;
  return wait.kind == WaitKind::none || wait.number != event.wait;
}

void World::expire(const Event& timer) {
  RankState& waiter = rank(timer.rank);
  if (waiter.wait.ends_by_itself()) --live_events_;
  if (waiter.wait.kind == WaitKind::compute) pool_.finish(*waiter.wait.job);
  wake(waiter, Wake::expired);
}

void World::realign_if_all_are_there() {
  std::uint64_t number = 0;
  for (const auto& rank : ranks_) {
    if (!rank->running || rank->crashed) continue;
    if (rank->wait.kind != WaitKind::realigning) return;
    STARLING_CHECK(number == 0 || number == rank->wait.realignment,
                   fmt::format("ranks come to realignments {} and {}", number, rank->wait.realignment));
    number = rank->wait.realignment;
  }
  if (number == 0) return;
  network_.realign(number);
  for (const auto& rank : ranks_) {
    rank->delays.realign(number);
    rank->compute_stream.seek(realigned_position(number));
    if (rank->running && !rank->crashed) wake(*rank, Wake::signal);
  }
}

double World::compute_seconds(RankState& rank, double units) {
  if (units == 0) return 0;  // Without a draw: looking at a run does not change its course.
  double seconds = options_.compute.time_per_unit.sample(rank.compute_stream) * units / options_.speed(rank.rank);
  for (const SlowRule& rule : options_.faults.slow) {
    if (rule.ranks.contains(rank.rank) && rule.interval.contains(now_)) seconds *= rule.times;
  }
  return seconds;
}

void World::compute(RankState& rank, double units, FunctionRef<void()> work) {
  const Time until = later(now_, from_seconds(compute_seconds(rank, units)));
  WorkPool::Job job(work);
  pool_.submit(job);
  Wait wait;
  wait.kind = WaitKind::compute;
  wait.job = &job;
  block(rank, wait, until);
  if (const std::exception_ptr error = pool_.finish(job)) std::rethrow_exception(error);
}

void World::pass(RankState& rank, std::string_view point) {
  const Duration delay = rank.delays.draw(point);
  if (delay > Duration::zero()) {
    Wait wait;
    wait.kind = WaitKind::sleep;
    block(rank, wait, later(now_, delay));
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

void World::crash(RankState& rank, const CrashRule* rule, const std::string& reason) {
  rank.crashed = true;
  report_.outcomes[static_cast<std::size_t>(rank.rank)] = {
      rank.rank, RankOutcome::Kind::crashed, fmt::format("a fault crashed it at {}, {}", format_duration(now_), reason), {}};
  trace_.mark(rank.rank, "crash", now_, reason);
  if (rank.wait.kind == WaitKind::compute) pool_.finish(*rank.wait.job);
  if (rank.wait.kind != WaitKind::none) wake(rank, Wake::signal);
  schedule(
      {.time = later(now_, options_.faults.detection), .kind = EventKind::departure, .rank = rank.rank, .incarnation = rank.incarnation});
  if (rule != nullptr && rule->restart_after) {
    ++pending_restarts_;
    schedule({.time = later(now_, *rule->restart_after), .kind = EventKind::restart, .rank = rank.rank});
  }
}

void World::depart(Rank gone, PeerState state, int incarnation) {
  RankState& departed = rank(gone);
  departures_.push_back({gone, state, now_});
  // A rank that was restarted before its crash was noticed has departed all the same, but is there.
  if (departed.incarnation == incarnation) {
    departed.seen_as = state;
    --alive_ranks_;
  }
  for (const auto& other : ranks_) {
    if (concerns(other->wait, *other, gone)) wake(*other, Wake::signal);
  }
}

// Whether a wait may be over now that a rank has departed.
bool World::concerns(const Wait& wait, const RankState& waiter, Rank gone) const {
  switch (wait.kind) {
    case WaitKind::message:
      return wait.filter->departures_seen.has_value() || nobody_can_send(waiter, *wait.filter);
    case WaitKind::room:
    case WaitKind::opening:
      return wait.peer == gone;
    case WaitKind::window:
      return wait.peer == gone && !wait.operation->window->open && !wait.operation->carried_out;
    default:
      return false;
  }
}

std::size_t World::departures_heard(RankState& rank) const {
  std::size_t& heard = rank.departures_heard;
  while (heard < departures_.size() && rank.channels[static_cast<std::size_t>(departures_[heard].rank)].arriving == 0) ++heard;
  return heard;
}

void World::report_deadlock() {
  // A rank may answer a deadlock with another wait, but not for ever.
  constexpr int kPatience = 100;
  deadlocks_at_that_time_ = deadlock_time_ == now_ ? deadlocks_at_that_time_ + 1 : 0;
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
  if (report_.deadlock.empty()) report_.deadlock = text;
  for (const auto& rank : ranks_) {
    if (!rank->running) continue;
    if (deadlocks_at_that_time_ > kPatience) {
      crash(*rank, nullptr, "because it waited again and again after a deadlock");
    } else {
      wake(*rank, Wake::deadlock);
    }
  }
}

}  // namespace starling::fabric::sim
