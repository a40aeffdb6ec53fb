// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the algorithms have in common: sending and receiving stretches of floats inside a group, in segments that stay in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "starling/collective/collective.h"

namespace starling::collective {

// Keeps the messages of the operations apart, within the tags reserved for built-in protocols.
enum class Operation : std::uint8_t { reduce = 1, gather, broadcast, barrier };

// Longer stretches travel as several messages, so that sending, adding and receiving overlap and the data is still in the cache when it
// is added. No algorithm depends on a queue that holds more than one of them.
inline constexpr std::size_t kSegmentFloats = std::size_t{1} << 17;

// A deadline of the caller's own is for the whole operation, so it is fixed once, at the start.
fabric::Deadline fix_deadline(const fabric::Endpoint& endpoint, fabric::Deadline deadline);

class Exchange {
 public:
  // Precondition: the endpoint's rank is a member of the group.
  Exchange(fabric::Endpoint& endpoint, const fabric::Group& group, Operation operation, fabric::Deadline deadline);

  int size() const { return group_.size(); }
  int index() const { return index_; }

  Status send(int to, fabric::Payload payload);
  Status send(int to, std::span<const float> values) { return send(to, fabric::Payload::copy_of(values)); }

  // A payload of exactly `size` floats; another size is a mismatch.
  Result<fabric::Payload> receive(int from, std::size_t size);

 private:
  fabric::Endpoint& endpoint_;
  const fabric::Group& group_;
  fabric::Tag tag_;
  fabric::Deadline deadline_;
  int index_;
};

inline std::size_t segments(std::size_t size) { return (size + kSegmentFloats - 1) / kSegmentFloats; }

// Segment `number` of a vector; empty beyond its end.
template <class T>
std::span<T> segment(std::span<T> values, std::size_t number) {
  const std::size_t begin = std::min(values.size(), number * kSegmentFloats);
  return values.subspan(begin, std::min(kSegmentFloats, values.size() - begin));
}

template <class T>
std::span<T> part(std::span<T> values, int parts, int index) {
  const Slice slice = slice_of(values.size(), parts, index);
  return values.subspan(slice.begin, slice.size);
}

// One file each.
Status ring_reduce_scatter(Exchange& exchange, std::span<float> values);
Status ring_all_gather(Exchange& exchange, std::span<float> values);
Status direct_reduce_scatter(Exchange& exchange, std::span<float> values);
Status direct_all_gather(Exchange& exchange, std::span<float> values);
Status flat_all_reduce(Exchange& exchange, std::span<float> values);
Status flat_reduce(Exchange& exchange, std::span<float> values);
Status tree_broadcast(Exchange& exchange, std::span<float> values, int root);

}  // namespace starling::collective
