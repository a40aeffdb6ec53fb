// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Operations with one member at the root: the flat all-reduce, and the binomial broadcast.
#include <algorithm>
#include <utility>

#include "starling/base/floats.h"
#include "starling/collective/exchange.h"

namespace starling::collective {

using fabric::Payload;

// Adds one segment of all members, in their order, into that of the first.
static Status gather_sum(Exchange& exchange, std::span<float> total) {
  for (int from = 1; from < exchange.size(); ++from) {
    Result<Payload> received = exchange.receive(from, total.size());
    if (!received) return received.failure();
    add_floats(total, received->as<float>());
  }
  return {};
}

Status flat_reduce(Exchange& exchange, std::span<float> values) {
  for (std::size_t number = 0; number < segments(values.size()); ++number) {
    const std::span<float> piece = segment(values, number);
    if (exchange.index() == 0) {
      STARLING_TRY(gather_sum(exchange, piece));
    } else {
      STARLING_TRY(exchange.send(0, piece));
    }
  }
  return {};
}

Status flat_all_reduce(Exchange& exchange, std::span<float> values) {
  const std::size_t count = segments(values.size());
  if (exchange.index() == 0) {
    for (std::size_t number = 0; number < count; ++number) {
      const std::span<float> piece = segment(values, number);
      STARLING_TRY(gather_sum(exchange, piece));
      const Payload payload = Payload::copy_of(std::span<const float>(piece));
      for (int to = 1; to < exchange.size(); ++to) STARLING_TRY(exchange.send(to, payload.share()));
    }
    return {};
  }
  std::size_t sent = 0;
  for (std::size_t number = 0; number < count; ++number) {
    for (; sent < std::min(count, number + 2); ++sent) STARLING_TRY(exchange.send(0, segment(values, sent)));
    const std::span<float> piece = segment(values, number);
    Result<Payload> received = exchange.receive(0, piece.size());
    if (!received) return received.failure();
    std::ranges::copy(received->as<float>(), piece.begin());
  }
  return {};
}

Status tree_broadcast(Exchange& exchange, std::span<float> values, int root) {
  const int size = exchange.size();
  // Positions relative to the root. A member hears from the one whose number lacks its lowest bit, and tells those that have one
  // lower bit more.
  const int me = (exchange.index() - root + size) % size;
  int lowest = 1;
  while (lowest < size && (me & lowest) == 0) lowest <<= 1;
  for (std::size_t number = 0; number < segments(values.size()); ++number) {
    const std::span<float> piece = segment(values, number);
    Payload payload;
    if (me == 0) {
      payload = Payload::copy_of(std::span<const float>(piece));
    } else {
      Result<Payload> received = exchange.receive((me - lowest + root) % size, piece.size());
      if (!received) return received.failure();
      payload = std::move(*received);
      std::ranges::copy(payload.as<float>(), piece.begin());
    }
    for (int bit = lowest >> 1; bit > 0; bit >>= 1) {
      if (me + bit < size) STARLING_TRY(exchange.send((me + bit + root) % size, payload.share()));
    }
  }
  return {};
}

}  // namespace starling::collective
