// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Everybody to everybody: each member is responsible for one slice. As few bytes as the ring, one round trip instead of a tour, and
// sums in the order of the group.
#include <algorithm>
#include <utility>

#include "starling/base/floats.h"
#include "starling/collective/exchange.h"

namespace starling::collective {

using fabric::Payload;

// Only the members' own slices can differ in length, by one element, so the first has the most segments.
static std::size_t rounds(std::span<float> values, int size) { return segments(part(values, size, 0).size()); }

Status direct_reduce_scatter(Exchange& exchange, std::span<float> values) {
  const int size = exchange.size();
  const int me = exchange.index();
  std::vector<float> sum(std::min(kSegmentFloats, part(values, size, me).size()));
  for (std::size_t round = 0; round < rounds(values, size); ++round) {
    // Each starts with its right neighbour, so that not all send to the same member at once.
    for (int step = 1; step < size; ++step) {
      const int to = (me + step) % size;
      const std::span<float> theirs = segment(part(values, size, to), round);
      if (!theirs.empty()) STARLING_TRY(exchange.send(to, theirs));
    }
    const std::span<float> own = segment(part(values, size, me), round);
    if (own.empty()) continue;
    const std::span<float> total = std::span(sum).first(own.size());
    for (int from = 0; from < size; ++from) {
      Payload payload;
      std::span<const float> term = own;
      if (from != me) {
        Result<Payload> received = exchange.receive(from, own.size());
        if (!received) return received.failure();
        payload = std::move(*received);
        term = payload.as<float>();
      }
      if (from == 0) {
        std::copy(term.begin(), term.end(), total.begin());
      } else {
        add_floats(total, term);
      }
    }
    std::copy(total.begin(), total.end(), own.begin());
  }
  return {};
}

Status direct_all_gather(Exchange& exchange, std::span<float> values) {
  const int size = exchange.size();
  const int me = exchange.index();
  for (std::size_t round = 0; round < rounds(values, size); ++round) {
    const std::span<float> own = segment(part(values, size, me), round);
    const Payload payload = Payload::copy_of(std::span<const float>(own));
    for (int step = 1; step < size && !own.empty(); ++step) STARLING_TRY(exchange.send((me + step) % size, payload.share()));
    for (int step = 1; step < size; ++step) {
      const int from = (me + size - step) % size;
      const std::span<float> target = segment(part(values, size, from), round);
      if (target.empty()) continue;
      Result<Payload> received = exchange.receive(from, target.size());
      if (!received) return received.failure();
      std::ranges::copy(received->as<float>(), target.begin());
    }
  }
  return {};
}

}  // namespace starling::collective
