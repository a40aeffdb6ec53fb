// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/mpi_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "starling/base/error.h"
#include "starling/fabric/mpi/call.h"

namespace starling::fabric::mpi {

void MpiEndpoint::sleep(Duration duration) { std::this_thread::sleep_for(duration); }

void MpiEndpoint::compute(double units, FunctionRef<void()> work) {
  if (speed_ == 1 || units == 0) return work();
  const Time begin = now();
  work();
  const Duration taken = now() - begin;
  sleep(from_seconds(to_seconds(taken) * (1 / speed_ - 1)));
}

void MpiEndpoint::pass(std::string_view point) {
  const Duration delay = delays_.draw(point);
  if (delay > Duration::zero()) sleep(delay);
}

Status MpiEndpoint::send(Rank to, Tag tag, Payload payload, Deadline deadline) {
  STARLING_CHECK(to >= 0 && to < size(), fmt::format("rank {} sends to rank {} of {}", rank(), to, size()));
  const std::size_t payload_bytes = payload.total_bytes();
  const Time begin = now();
  bool gone = false;
  Taken unread;
  const auto try_to_send = [&] {
    gone = world_.state(to) != PeerState::alive;
    if (gone) return true;
    if (!world_.has_room(to, payload_bytes)) {
      world_.ask_for_room(to);
      unread = world_.unread(to);
      return false;
    }
    world_.send(to, tag, std::move(payload));
    return true;
  };
  bool done = false;
  {
    const World::Lock lock = world_.lock();
    done = try_to_send();
  }
  if (!done) done = world_.wait(try_to_send, limit(deadline, begin));
  const auto failure = [&](FailureKind kind, std::string awaited, std::string detail) {
    return Failure{kind, rank(), to, std::move(awaited), now() - begin, std::move(detail)};
  };
  if (gone) return failure(FailureKind::peer_lost, fmt::format("rank {} to take a message with tag {}", to, tag), "it is gone");
  if (!done) {
    return failure(FailureKind::timeout, fmt::format("room at rank {} for a message with tag {}", to, tag),
                   fmt::format("{} messages ({} bytes) lie there unread", unread.messages, unread.bytes));
  }
  ++traffic_.messages_sent;
  traffic_.bytes_sent += payload_bytes;
  return {};
}

void MpiEndpoint::received(const Message& message) {
  ++traffic_.messages_received;
  traffic_.bytes_received += message.payload.total_bytes();
}

std::optional<Message> MpiEndpoint::poll(const Filter& filter) {
  check_source(filter, size());
  std::optional<Message> message;
  world_.wait(
      [&] {
        message = world_.take(filter);
        return true;
      },
      kEndOfTime);
  if (message) received(*message);
  return message;
}

Result<Message> MpiEndpoint::receive(const Filter& filter, Deadline deadline) {
  check_source(filter, size());
  const Time begin = now();
  std::optional<Message> message;
  bool gone = false;
  const auto done = world_.wait(
      [&] {
        message = world_.take(filter);
        // Departures come behind everything else, so what a rank had sent has been taken by now.
        gone = !message && (nobody_can_send(filter) || (filter.departures_seen && world_.departures().size() > *filter.departures_seen));
        return message || gone;
      },
      limit(deadline, begin));
  if (message) {
    received(*message);
    return std::move(*message);
  }
  if (gone) return lost(filter, begin);
  STARLING_CHECK(!done, std::string("a wait has ended without a reason"));
  return Failure{FailureKind::timeout, rank(), filter.source, filter.description(), now() - begin, ""};
}

// With the lock held.
bool MpiEndpoint::nobody_can_send(const Filter& filter) const {
  if (filter.source == rank()) return false;
  if (filter.source != kAnyRank) return world_.state(filter.source) != PeerState::alive;
  return world_.departures().size() + 1 >= static_cast<std::size_t>(size());
}

Failure MpiEndpoint::lost(const Filter& filter, Time begin) const {
  Failure failure{FailureKind::peer_lost, rank(), filter.source, filter.description(), now() - begin, "it is gone"};
  const std::vector<Departure> all = departures();
  if (filter.departures_seen && *filter.departures_seen < all.size()) {
    failure.peer = all[*filter.departures_seen].rank;
    failure.detail = fmt::format("rank {} is gone", failure.peer);
  } else if (filter.source == kAnyRank) {
    failure.detail = "no other rank is left";
  }
  return failure;
}

PeerState MpiEndpoint::peer(Rank rank) const {
  const World::Lock lock = world_.lock();
  return world_.state(rank);
}

std::vector<Departure> MpiEndpoint::departures() const {
  const World::Lock lock = world_.lock();
  return world_.departures();
}

Result<std::shared_ptr<Window>> MpiEndpoint::open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) {
  STARLING_CHECK(home >= 0 && home < this->size(), fmt::format("window '{}' at rank {} of {}", name, home, this->size()));
  const Time begin = now();
  bool gone = false;
  std::optional<OpenedWindow> opened;
  world_.wait(
      [&] {
        gone = world_.state(home) != PeerState::alive;
        if (gone) return true;
        if (home == rank() && world_.find_window(name, home) == nullptr) {
          OpenedWindow window{.name = std::string(name), .home = home, .floats = size};
          own_windows_.push_back(make_window_memory(world_, window));
          world_.announce_window(std::move(window));
        }
        if (const OpenedWindow* found = world_.find_window(name, home)) opened = *found;
        return opened.has_value();
      },
      limit(deadline, begin));
  const auto failure = [&](FailureKind kind, std::string detail) {
    return Failure{kind, rank(), home, fmt::format("window '{}' at rank {}", name, home), now() - begin, std::move(detail)};
  };
  if (gone) return failure(FailureKind::peer_lost, "its home is gone");
  if (!opened) return failure(FailureKind::timeout, "its home has not opened it");
  if (opened->floats != size) {
    return failure(FailureKind::mismatch, fmt::format("it has {} floats, this rank asked for {}", opened->floats, size));
  }
  return mpi::open_window(world_, *opened);
}

std::optional<Status> MpiEndpoint::native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) {
  if (world_.mpi_options().library_all_reduce && group.size() == size() && group == Group::world(size())) {
    return library_all_reduce(values, deadline);
  }
  return host_all_reduce_.reduce(*this, group, values, deadline);
}

Status MpiEndpoint::library_all_reduce(std::span<float> values, Deadline deadline) {
  const Time begin = now();
  constexpr std::size_t kPieceFloats = std::size_t{1} << 28;
  // Nobody can take back what MPI has begun: where it fails, the memory must stay.
  library_sums_.assign(values.begin(), values.end());
  for (std::size_t at = 0; at < values.size(); at += kPieceFloats) {
    MPI_Request request = MPI_REQUEST_NULL;
    std::uint64_t number = 0;
    {
      const World::Lock lock = world_.lock();
      number = world_.begin_library_call();
      call("MPI_Iallreduce",
           MPI_Iallreduce(MPI_IN_PLACE, library_sums_.data() + at, static_cast<int>(std::min(kPieceFloats, values.size() - at)), MPI_FLOAT,
                          MPI_SUM, world_.members().all, &request));
    }
    Rank gone = kAnyRank;
    const auto reduced = [&] {
      int done = 0;
      call("MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      for (const Departure& departure : world_.departures()) {
        // One that finished may have done its part in this before.
        const bool took_part = departure.state == PeerState::finished && world_.library_calls(departure.rank) >= number;
        if (done == 0 && !took_part) gone = departure.rank;
      }
      return done == 1 || gone != kAnyRank;
    };
    const bool ended = world_.wait(reduced, limit(deadline, begin), true);
    const auto failure = [&](FailureKind kind, std::string detail) {
      world_.break_down();
      world_.keep_until_the_end(std::move(library_sums_));
      return Failure{kind, rank(), gone, "all ranks in MPI_Allreduce", now() - begin, std::move(detail)};
    };
    if (gone != kAnyRank) return failure(FailureKind::peer_lost, fmt::format("rank {} is gone", gone));
    if (!ended) return failure(FailureKind::timeout, "");
  }
  std::ranges::copy(library_sums_, values.begin());
  return {};
}

}  // namespace starling::fabric::mpi
