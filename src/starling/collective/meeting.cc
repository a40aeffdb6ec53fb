// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/collective/meeting.h"

#include <algorithm>
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

fabric::Payload number_payload(std::uint64_t number) { return fabric::Payload::copy_of(std::span<const std::uint64_t>(&number, 1)); }

Rank first_alive(const Endpoint& endpoint) {
  for (Rank rank = 0; rank < endpoint.rank(); ++rank) {
    if (endpoint.peer(rank) == PeerState::alive) return rank;
  }
  return endpoint.rank();
}

}  // namespace

bool is_first_alive(const Endpoint& endpoint) { return first_alive(endpoint) == endpoint.rank(); }

Meeting::Meeting(Endpoint& endpoint, fabric::Patience patience)
    : endpoint_(endpoint), patience_(std::move(patience)), arrived_(static_cast<std::size_t>(endpoint.size())) {}

Status Meeting::hold(const std::function<void()>& work) {
  ++number_;
  for (;;) {
    const Rank first = first_alive(endpoint_);
    Status status = first == endpoint_.rank() ? lead(work) : follow(first);
    // A leader that was lost has a successor; all other failures are for the caller.
    if (status.ok() || status.failure().kind != FailureKind::peer_lost || endpoint_.peer(first) == PeerState::alive) return status;
  }
}

Status Meeting::lead(const std::function<void()>& work) {
  const auto missing = [&] {
    for (Rank rank = 0; rank < endpoint_.size(); ++rank) {
      if (rank != endpoint_.rank() && arrived_[static_cast<std::size_t>(rank)] < number_ && endpoint_.peer(rank) == PeerState::alive)
        return true;
    }
    return false;
  };
  while (missing()) {
    const fabric::Filter filter{.tag = kArrival, .departures_seen = endpoint_.departures().size()};
    if (!missing()) break;  // Somebody departed between the two.
    Result<Message> message = patience_.receive(endpoint_, filter);
    if (!message) {
      // Somebody has departed: perhaps nobody is missing any more.
      if (message.failure().kind == FailureKind::peer_lost) continue;
      return message.failure();
    }
    const auto number = message->payload.as<std::uint64_t>()[0];
    std::uint64_t& last = arrived_[static_cast<std::size_t>(message->source)];
    if (number < number_) {
      // Of a meeting that is over: its leader was lost before it could let this rank go on.
      Status sent = endpoint_.send(message->source, kRelease, number_payload(number));
      if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
      continue;
    }
    last = std::max(last, number);  // A later meeting: the leader before has let it go on before it was lost.
  }
  work();
  for (Rank rank = 0; rank < endpoint_.size(); ++rank) {
    if (rank == endpoint_.rank() || endpoint_.peer(rank) != PeerState::alive || arrived_[static_cast<std::size_t>(rank)] > number_)
      continue;
    Status sent = endpoint_.send(rank, kRelease, number_payload(number_));
    if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
  }
  return {};
}

Status Meeting::follow(Rank leader) {
  STARLING_TRY(endpoint_.send(leader, kArrival, number_payload(number_)));
  for (;;) {
    Result<Message> message = patience_.receive(endpoint_, fabric::from(leader, kRelease));
    if (!message) return message.failure();
    if (message->payload.as<std::uint64_t>()[0] == number_) return {};
  }
}

}  // namespace starling::collective
