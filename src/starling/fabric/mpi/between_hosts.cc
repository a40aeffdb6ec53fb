// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The part of the all-reduce that passes sums from host to host.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "starling/base/floats.h"
#include "starling/fabric/mpi/host_all_reduce.h"

namespace starling::fabric::mpi {
namespace {

// The sum so far needs as much room in the buffer of the first member as its own part.
constexpr std::size_t kMostFloats = HostMemory::kBufferFloats / 2;
constexpr std::size_t kLeastFloats = 2048;
constexpr std::size_t kPiecesPerHost = 8;  // So that all hosts have something to do most of the time.
constexpr int kAheadPerHost = 4;  // Pieces: a piece needs two passages per host, there and back, and no link may stand idle meanwhile.
constexpr int kMostAhead = 32;

constexpr Tag kSum = kFirstReservedTag | 0x2000'0001;
constexpr Tag kResult = kFirstReservedTag | 0x2000'0002;

Tag tag_for(const Group& group, Tag tag) { return tag | static_cast<Tag>(group.context()) << 8; }

Payload piece_of(std::span<const float> values, std::size_t all) {
  Payload payload = Payload::copy_of(values);
  const std::array<std::uint64_t, 1> head{all};
  payload.set_head(std::as_bytes(std::span(head)));
  return payload;
}

// A piece of a vector of `all` floats, or a mismatch.
Result<Message> receive_piece(Endpoint& endpoint, Rank from_rank, Tag tag, std::size_t floats, std::size_t all, Deadline deadline) {
  Result<Message> message = endpoint.receive(from(from_rank, tag), deadline);
  if (!message) return message;
  std::uint64_t their_all = 0;
  const std::span<const std::byte> head = message->payload.head();
  if (head.size() == sizeof(their_all)) std::memcpy(&their_all, head.data(), sizeof(their_all));
  if (their_all == all && message->payload.size_bytes() == floats * sizeof(float)) return message;
  return Failure{FailureKind::mismatch,
                 endpoint.rank(),
                 from_rank,
                 "an all-reduce",
                 Duration::zero(),
                 fmt::format("the members give vectors of different length: {} floats here, {} at rank {}", all, their_all, from_rank)};
}

}  // namespace

// The result of a piece is taken some pieces after it was added to, so that hosts need not wait for each other. A host is never further
// ahead than the one before it; so whoever waits, waits for one that goes on.
Status HostAllReduce::reduce_between(Endpoint& endpoint, Place& place, std::span<float> values, Deadline deadline) {
  const auto hosts = static_cast<std::size_t>(place.hosts);
  const std::size_t wished = values.size() / (kPiecesPerHost * hosts);
  const std::size_t floats = std::clamp(wished, kLeastFloats, kMostFloats);
  const std::size_t pieces = (values.size() + floats - 1) / floats;
  const auto ahead = static_cast<std::size_t>(std::min(kAheadPerHost * place.hosts_after, kMostAhead));
  const auto piece = [&](std::size_t number) { return values.subspan(number * floats, std::min(floats, values.size() - number * floats)); };
  for (std::size_t number = 0; number < pieces + ahead; ++number) {
    if (number < pieces) STARLING_TRY(add_piece(endpoint, place, piece(number), values.size(), deadline));
    if (place.after != kAnyRank && number >= ahead) {
      STARLING_TRY(take_piece(endpoint, place, piece(number - ahead), values.size(), deadline));
    }
  }
  return {};
}

Status HostAllReduce::add_piece(Endpoint& endpoint, Place& place, std::span<float> values, std::size_t all, Deadline deadline) {
  const Part own = part_of(values.size(), place.count(), static_cast<std::size_t>(place.index));
  put_parts_of_others(place, values, own);
  std::span<const float> before;
  if (place.before != kAnyRank) {
    const std::span<float> room = buffer(place, 0).subspan(kMostFloats, values.size());
    if (place.is_first()) {
      Result<Message> sum = receive_piece(endpoint, place.before, tag_for(place.group, kSum), values.size(), all, deadline);
      if (!sum) return sum.failure();
      std::ranges::copy(sum->payload.as<float>(), room.begin());
    }
    before = room;
  }
  place.awaited = place.before;
  STARLING_TRY(meet(place, deadline));
  place.awaited = kAnyRank;
  if (auto failure = different_sizes(place)) return *failure;
  add_in_order(place, values, own, before);
  STARLING_TRY(meet(place, deadline));
  // The last host has the result; elsewhere the first member alone needs all of the sum, to pass it on.
  if (place.after == kAnyRank || place.is_first()) take_parts_of_others(place, values, false);
  if (place.is_first()) STARLING_TRY(pass_on(endpoint, place, values, all, deadline));
  ++place.pieces;
  return {};
}

Status HostAllReduce::pass_on(Endpoint& endpoint, const Place& place, std::span<const float> sum, std::size_t all, Deadline deadline) {
  if (place.after != kAnyRank) return endpoint.send(place.after, tag_for(place.group, kSum), piece_of(sum, all), deadline);
  return endpoint.send(place.before, tag_for(place.group, kResult), piece_of(sum, all), deadline);
}

Status HostAllReduce::take_piece(Endpoint& endpoint, Place& place, std::span<float> values, std::size_t all, Deadline deadline) {
  if (place.is_first()) {
    Result<Message> result = receive_piece(endpoint, place.after, tag_for(place.group, kResult), values.size(), all, deadline);
    if (!result) return result.failure();
    std::ranges::copy(result->payload.as<float>(), values.begin());
    if (place.before != kAnyRank) {
      STARLING_TRY(endpoint.send(place.before, tag_for(place.group, kResult), std::move(result->payload), deadline));
    }
    std::ranges::copy(values, buffer(place, 0).begin());
  }
  place.awaited = place.after;
  STARLING_TRY(meet(place, deadline));
  place.awaited = kAnyRank;
  if (!place.is_first()) std::ranges::copy(buffer(place, 0).first(values.size()), values.begin());
  ++place.pieces;
  return {};
}

}  // namespace starling::fabric::mpi
