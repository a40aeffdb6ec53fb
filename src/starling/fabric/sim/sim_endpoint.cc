// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/sim_endpoint.h"

#include <fmt/format.h>

#include <utility>

#include "starling/base/error.h"

namespace starling::fabric::sim {
namespace {

constexpr const char* kNothingUnderWay = "every rank waits and nothing is under way";

Wait waiting(WaitKind kind, Deadline deadline, Rank peer) {
  Wait wait;
  wait.kind = kind;
  wait.standard = deadline.is_standard();
  wait.peer = peer;
  return wait;
}

Failure crashed(Rank rank) {
  return {FailureKind::crashed, rank, rank, "the end of this rank", Duration::zero(), "a fault has crashed it"};
}

// How a wait ended that brought nothing.
Failure given_up(Wake wake, Rank rank, Rank peer, std::string awaited, Duration waited, std::string detail) {
  if (wake == Wake::deadlock) return {FailureKind::deadlock, rank, peer, std::move(awaited), waited, kNothingUnderWay};
  return {FailureKind::timeout, rank, peer, std::move(awaited), waited, std::move(detail)};
}

class SimWindow final : public Window {
 public:
  SimWindow(World& world, RankState& state, std::shared_ptr<WindowMemory> memory)
      : world_(world), state_(state), memory_(std::move(memory)) {}

  const std::string& name() const override { return memory_->name; }
  Rank home() const override { return memory_->home; }
  std::size_t size() const override { return memory_->floats.size(); }

  Status read(std::size_t offset, std::span<float> to, Deadline deadline) override {
    return carry_out({WindowOperation::Kind::read, memory_, offset, to.data(), nullptr, to.size()}, deadline);
  }
  Status write(std::size_t offset, std::span<const float> from, Deadline deadline) override {
    return carry_out({WindowOperation::Kind::write, memory_, offset, nullptr, from.data(), from.size()}, deadline);
  }
  Status add(std::size_t offset, std::span<const float> values, Deadline deadline) override {
    return carry_out({WindowOperation::Kind::add, memory_, offset, nullptr, values.data(), values.size()}, deadline);
  }
  Result<float> fetch_add(std::size_t offset, float value, Deadline deadline) override {
    float before = 0;
    STARLING_TRY(carry_out({WindowOperation::Kind::fetch_add, memory_, offset, &before, &value, 1}, deadline));
    return before;
  }

 private:
  Status carry_out(WindowOperation operation, Deadline deadline) {
    STARLING_CHECK(
        operation.offset <= size() && operation.count <= size() - operation.offset,
        fmt::format("floats {} to {} of window '{}', which has {}", operation.offset, operation.offset + operation.count, name(), size()));
    if (World::unwinding(state_)) return crashed(state_.rank);
    const Time begin = world_.now();
    const auto description = [&] { return fmt::format("window '{}' at rank {}", name(), home()); };
    const auto home_gone = [&] {
      return Failure{FailureKind::peer_lost, state_.rank, home(), description(), world_.now() - begin, "its home is gone"};
    };
    // That the window is closed is known here only if the departure of its home is, or if this rank is the home.
    if (!memory_->open && (world_.rank(home()).seen_as != PeerState::alive || home() == state_.rank)) return home_gone();
    if (home() == state_.rank) {
      operation.carry_out();
      return {};
    }
    Wait wait = waiting(WaitKind::window, deadline, home());
    wait.operation = &operation;
    const Wake wake = world_.block(state_, wait, deadline.resolve(begin, world_.options().timeout));
    if (wake == Wake::crashed) return crashed(state_.rank);
    if (operation.done) return {};
    if (wake == Wake::signal) return home_gone();
    return given_up(wake, state_.rank, home(), description(), world_.now() - begin, "");
  }

  World& world_;
  RankState& state_;
  std::shared_ptr<WindowMemory> memory_;
};

}  // namespace

void SimEndpoint::sleep(Duration duration) {
  if (World::unwinding(state_)) return;
  Wait wait;
  wait.kind = WaitKind::sleep;
  world_.block(state_, wait, later(world_.now(), duration));
}

void SimEndpoint::compute(double units, FunctionRef<void()> work) {
  if (World::unwinding(state_)) return;
  STARLING_CHECK(units >= 0, fmt::format("rank {} computes {} units of work", state_.rank, units));
  world_.compute(state_, units, work);
}

void SimEndpoint::pass(std::string_view point) {
  if (!World::unwinding(state_)) world_.pass(state_, point);
}

Status SimEndpoint::send(Rank to, Tag tag, Payload payload, Deadline deadline) {
  STARLING_CHECK(to >= 0 && to < size(), fmt::format("rank {} sends to rank {} of {}", state_.rank, to, size()));
  if (World::unwinding(state_)) return crashed(state_.rank);
  const Time begin = world_.now();
  const Time until = deadline.resolve(begin, world_.options().timeout);
  Wake wake = Wake::signal;
  for (;;) {
    if (wake == Wake::crashed) return crashed(state_.rank);
    if (wake != Wake::deadlock && world_.rank(to).seen_as != PeerState::alive) {
      return Failure{FailureKind::peer_lost, state_.rank, to, fmt::format("rank {} to take a message with tag {}", to, tag),
                     world_.now() - begin,   "it is gone"};
    }
    // Before looking for room: after a deadlock there may be some where another rank has already given up.
    if (wake != Wake::deadlock && world_.has_room(state_, to, payload.total_bytes())) {
      world_.send(state_, to, tag, std::move(payload), Care::usual);
      return {};
    }
    if (wake != Wake::signal) {
      return given_up(wake, state_.rank, to, fmt::format("room at rank {} for a message with tag {}", to, tag), world_.now() - begin,
                      "earlier messages lie there unread or are still on their way");
    }
    wake = world_.block(state_, waiting(WaitKind::room, deadline, to), until);
  }
}

bool SimEndpoint::offer(Rank to, Tag tag, Payload payload) {
  STARLING_CHECK(to >= 0 && to < size(), fmt::format("rank {} offers to rank {} of {}", state_.rank, to, size()));
  if (World::unwinding(state_) || world_.rank(to).seen_as != PeerState::alive) return false;
  if (!world_.has_room(state_, to, payload.total_bytes())) return false;
  world_.send(state_, to, tag, std::move(payload), Care::none);
  return true;
}

Result<Message> SimEndpoint::receive(const Filter& filter, Deadline deadline) {
  check_source(filter, size());
  if (World::unwinding(state_)) return crashed(state_.rank);
  const Time begin = world_.now();
  const Time until = deadline.resolve(begin, world_.options().timeout);
  Wake wake = Wake::signal;
  for (;;) {
    if (wake == Wake::crashed) return crashed(state_.rank);
    if (std::optional<Message> message = world_.take(state_, filter)) return std::move(*message);
    const Duration waited = world_.now() - begin;
    const auto lost = [&](Rank gone, std::string detail) {
      return Failure{FailureKind::peer_lost, state_.rank, gone, filter.description(), waited, std::move(detail)};
    };
    // Before looking who is gone: those that have already given up because of the deadlock are not its cause.
    if (wake == Wake::deadlock) return given_up(wake, state_.rank, filter.source, filter.description(), waited, "");
    if (filter.departures_seen && world_.departures_heard(state_) > *filter.departures_seen) {
      const Rank gone = world_.departures()[*filter.departures_seen].rank;
      return lost(gone, fmt::format("rank {} is gone", gone));
    }
    if (world_.nobody_can_send(state_, filter)) {
      return lost(filter.source, filter.source == kAnyRank ? "no other rank is left" : "it is gone");
    }
    if (wake != Wake::signal) return given_up(wake, state_.rank, filter.source, filter.description(), waited, "");
    Wait wait = waiting(WaitKind::message, deadline, filter.source);
    wait.filter = &filter;
    wake = world_.block(state_, wait, until);
  }
}

Status SimEndpoint::realign(std::uint64_t number, Deadline deadline) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 31U;
  STARLING_CHECK(number >= 1 && number <= kLargest, fmt::format("realignment {}", number));
  if (World::unwinding(state_)) return crashed(state_.rank);
  const Time begin = world_.now();
  Wait wait = waiting(WaitKind::realigning, deadline, kAnyRank);
  wait.realignment = number;
  const Wake wake = world_.block(state_, wait, deadline.resolve(begin, world_.options().timeout));
  if (wake == Wake::crashed) return crashed(state_.rank);
  if (wake == Wake::signal) return {};
  return given_up(wake, state_.rank, kAnyRank, wait.description(), world_.now() - begin, "");
}

std::vector<Departure> SimEndpoint::departures() const {
  const std::vector<Departure>& all = world_.departures();
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(world_.departures_heard(state_))};
}

std::optional<Message> SimEndpoint::poll(const Filter& filter) {
  check_source(filter, size());
  if (World::unwinding(state_)) return std::nullopt;
  if (std::optional<Message> message = world_.take(state_, filter)) return message;
  Wait wait;
  wait.kind = WaitKind::poll;
  if (world_.block(state_, wait, later(world_.now(), world_.options().poll_cost)) == Wake::crashed) return std::nullopt;
  return world_.take(state_, filter);
}

Result<std::shared_ptr<Window>> SimEndpoint::open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) {
  STARLING_CHECK(home >= 0 && home < this->size(), fmt::format("window '{}' at rank {} of {}", name, home, this->size()));
  if (World::unwinding(state_)) return crashed(state_.rank);
  const Time begin = world_.now();
  const Time until = deadline.resolve(begin, world_.options().timeout);
  const auto failure = [&](FailureKind kind, std::string detail) {
    return Failure{kind, state_.rank, home, fmt::format("window '{}' at rank {}", name, home), world_.now() - begin, std::move(detail)};
  };
  Wake wake = Wake::signal;
  for (;;) {
    if (wake == Wake::crashed) return crashed(state_.rank);
    if (wake == Wake::deadlock) return failure(FailureKind::deadlock, kNothingUnderWay);
    if (world_.rank(home).seen_as != PeerState::alive) return failure(FailureKind::peer_lost, "its home is gone");
    std::shared_ptr<WindowMemory> memory = world_.find_window(name, home);
    if (!memory && home == state_.rank) memory = world_.create_window(name, size, home);
    if (memory) {
      if (memory->floats.size() == size) return std::shared_ptr<Window>(std::make_shared<SimWindow>(world_, state_, std::move(memory)));
      return failure(FailureKind::mismatch, fmt::format("it has {} floats, this rank asked for {}", memory->floats.size(), size));
    }
    if (wake == Wake::expired) return failure(FailureKind::timeout, "its home has not opened it");
    wake = world_.block(state_, waiting(WaitKind::opening, deadline, home), until);
  }
}

}  // namespace starling::fabric::sim
