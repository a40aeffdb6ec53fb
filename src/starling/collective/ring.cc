// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The ring (Patarasuk, Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Slice s starts at member
// s + 1 and goes once around; each member adds its own part into the very payload that passes through it.
#include <algorithm>
#include <utility>

#include "starling/base/floats.h"
#include "starling/collective/exchange.h"

namespace starling::collective {
namespace {

using fabric::Payload;

// One step of a ring: segment by segment, sends `outgoing` (or, where those are empty, copies of `own`) to the right and hands what comes
// from the left to `incoming`. What came in is what the next step sends; after the last one it is freed piece by piece. Nothing is
// sent ahead: with queues that hold one message, all would wait for each other.
template <class Incoming>
Status ring_step(Exchange& exchange, std::vector<Payload>& outgoing, std::span<const float> own, std::size_t incoming_size, bool last,
                 Incoming incoming) {
  const int right = (exchange.index() + 1) % exchange.size();
  const int left = (exchange.index() + exchange.size() - 1) % exchange.size();
  const std::size_t to_send = segments(own.size());
  const std::size_t to_receive = segments(incoming_size);
  std::vector<Payload> next(last ? 0 : to_receive);
  for (std::size_t number = 0; number < std::max(to_send, to_receive); ++number) {
    if (number < to_send) {
      Payload payload = outgoing.empty() ? Payload::copy_of(segment(own, number)) : std::move(outgoing[number]);
      STARLING_TRY(exchange.send(right, std::move(payload)));
    }
    if (number >= to_receive) continue;
    const std::size_t size = std::min(kSegmentFloats, incoming_size - number * kSegmentFloats);
    Result<Payload> payload = exchange.receive(left, size);
    if (!payload) return payload.failure();
    incoming(number, *payload);
    if (!last) next[number] = std::move(*payload);
  }
  outgoing = std::move(next);
  return {};
}

}  // namespace

Status ring_reduce_scatter(Exchange& exchange, std::span<float> values) {
  const int size = exchange.size();
  const auto slice = [&](int number) { return part(values, size, ((number % size) + size) % size); };
  std::vector<Payload> passing;
  for (int step = 0; step + 1 < size; ++step) {
    const std::span<float> own = slice(exchange.index() - 2 - step);
    const bool last = step + 2 == size;
    STARLING_TRY(
        ring_step(exchange, passing, slice(exchange.index() - 1 - step), own.size(), last, [&](std::size_t number, Payload& payload) {
          const std::span<float> sum = payload.writable_as<float>();
          add_floats(sum, segment(own, number));
          if (last) std::copy(sum.begin(), sum.end(), segment(own, number).begin());
        }));
  }
  return {};
}

Status ring_all_gather(Exchange& exchange, std::span<float> values) {
  const int size = exchange.size();
  const auto slice = [&](int number) { return part(values, size, ((number % size) + size) % size); };
  std::vector<Payload> passing;
  for (int step = 0; step + 1 < size; ++step) {
    const std::span<float> target = slice(exchange.index() - 1 - step);
    STARLING_TRY(
        ring_step(exchange, passing, slice(exchange.index() - step), target.size(), step + 2 == size,
                  [&](std::size_t number, Payload& payload) { std::ranges::copy(payload.as<float>(), segment(target, number).begin()); }));
  }
  return {};
}

}  // namespace starling::collective
