// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/collective/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace starling::collective {
namespace {

using fabric::Endpoint;
using fabric::Message;
using fabric::PeerState;
using fabric::Rank;

// Beyond those of the operations (exchange.cc).
constexpr fabric::Tag kArrival = fabric::kFirstReservedTag | 0x4000'0001;
constexpr fabric::Tag kRelease = fabric::kFirstReservedTag | 0x4000'0002;

// The number of the meeting is the head, what is carried the body.
fabric::Payload numbered(std::uint64_t number, fabric::Payload payload = {}) {
  payload.set_head(std::as_bytes(std::span<const std::uint64_t>(&number, 1)));
  return payload;
}

std::uint64_t number_of(const fabric::Payload& payload) {
  std::uint64_t number = 0;
  STARLING_CHECK(payload.head().size() == sizeof(number), std::string("a message of a meeting has its number"));
  std::memcpy(&number, payload.head().data(), sizeof(number));
  return number;
}

Rank first_alive(const Endpoint& endpoint) {
  for (Rank rank = 0; rank < endpoint.rank(); ++rank) {
    if (endpoint.peer(rank) == PeerState::alive) return rank;
  }
  return endpoint.rank();
}

}  // namespace

bool is_first_alive(const Endpoint& endpoint) { return first_alive(endpoint) == endpoint.rank(); }

Meeting::Meeting(Endpoint& endpoint, fabric::Patience patience, Attendance attendance)
    : endpoint_(endpoint), patience_(std::move(patience)), attendance_(attendance), arrived_(static_cast<std::size_t>(endpoint.size())) {}

Status Meeting::hold(const std::function<void()>& work, const Parcels& parcels) {
  STARLING_CHECK(attendance_ == Attendance::all || (!parcels.bring && !parcels.give), std::string("parcels need everybody's attendance"));
  ++number_;
  for (;;) {
    const Rank first = attendance_ == Attendance::all ? 0 : first_alive(endpoint_);
    Status status = first == endpoint_.rank() ? lead(work, parcels) : follow(first, parcels);
    if (status.ok() || attendance_ == Attendance::all) return status;
    // A leader that was lost has a successor; all other failures are for the caller.
    if (status.failure().kind != FailureKind::peer_lost || endpoint_.peer(first) == PeerState::alive) return status;
  }
}

bool Meeting::anybody_missing() const {
  for (Rank rank = 0; rank < endpoint_.size(); ++rank) {
    if (rank != endpoint_.rank() && arrived_[static_cast<std::size_t>(rank)] < number_ && endpoint_.peer(rank) == PeerState::alive)
      return true;
  }
  return false;
}

// A failure where somebody is gone who should be there.
Status Meeting::check_attendance() const {
  if (attendance_ != Attendance::all) return {};
  for (const fabric::Departure& departure : endpoint_.departures()) {
    return Failure{FailureKind::peer_lost, endpoint_.rank(), departure.rank, fmt::format("rank {} at a meeting of all", departure.rank),
                   Duration::zero(),       "it is gone"};
  }
  return {};
}

Status Meeting::lead(const std::function<void()>& work, const Parcels& parcels) {
  STARLING_TRY(gather(parcels));
  STARLING_TRY(check_attendance());
  work();
  const fabric::Payload given = parcels.give ? parcels.give() : fabric::Payload();
  for (Rank rank = 0; rank < endpoint_.size(); ++rank) {
    if (rank == endpoint_.rank() || endpoint_.peer(rank) != PeerState::alive || arrived_[static_cast<std::size_t>(rank)] > number_)
      continue;
    Status sent = endpoint_.send(rank, kRelease, numbered(number_, given.share()));
    if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
  }
  return {};
}

Status Meeting::gather(const Parcels& parcels) {
  while (anybody_missing()) {
    const fabric::Filter filter{.tag = kArrival, .departures_seen = endpoint_.departures().size()};
    if (!anybody_missing()) break;  // Somebody departed between the two.
    STARLING_TRY(check_attendance());
    Result<Message> message = patience_.receive(endpoint_, filter);
    if (!message) {
      // Somebody has departed: perhaps nobody is missing any more.
      if (message.failure().kind == FailureKind::peer_lost) continue;
      return message.failure();
    }
    const std::uint64_t number = number_of(message->payload);
    std::uint64_t& last = arrived_[static_cast<std::size_t>(message->source)];
    if (number < number_) {
      // Of a meeting that is over: its leader was lost before it could let this rank go on.
      Status sent = endpoint_.send(message->source, kRelease, numbered(number));
      if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
      continue;
    }
    if (parcels.receive && number == number_) parcels.receive(message->source, message->payload);
    last = std::max(last, number);  // A later meeting: the leader before has let it go on before it was lost.
  }
  return {};
}

Status Meeting::follow(Rank leader, const Parcels& parcels) {
  STARLING_TRY(endpoint_.send(leader, kArrival, numbered(number_, parcels.bring ? parcels.bring() : fabric::Payload())));
  for (;;) {
    Result<Message> message = patience_.receive(endpoint_, fabric::from(leader, kRelease));
    if (!message) return message.failure();
    if (number_of(message->payload) != number_) continue;
    if (parcels.take) parcels.take(message->payload);
    return {};
  }
}

}  // namespace starling::collective
