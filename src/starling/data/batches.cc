// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "starling/base/error.h"
#include "starling/data/shuffle.h"

namespace starling::data {

BatchOrder::BatchOrder(std::vector<std::uint32_t> indices, std::uint64_t seed, std::uint32_t rank)
    : indices_(std::move(indices)), seed_(seed), rank_(rank) {
  STARLING_CHECK(!indices_.empty(), std::string("a worker has at least one sample"));
}

std::span<const std::uint32_t> BatchOrder::next(std::size_t size) {
  STARLING_CHECK(size > 0, std::string("a batch has at least one sample"));
  if (shuffled_epoch_ != position_.epoch) shuffle();
  const std::size_t first = position_.sample;
  const std::size_t count = std::min(size, order_.size() - first);
  position_.sample += count;
  ++position_.number;
  if (position_.sample == order_.size()) {
    position_.sample = 0;
    ++position_.epoch;
  }
  return std::span(order_).subspan(first, count);
}

void BatchOrder::seek(const Position& position) {
  STARLING_CHECK(position.sample < indices_.size(), fmt::format("sample {} of an epoch of {}", position.sample, indices_.size()));
  position_ = position;
}

// Each epoch has a stream of its own and starts from the indices as given, so that its order is known without those before it.
void BatchOrder::shuffle() {
  order_ = indices_;
  RandomStream stream(seed_, rank_, fmt::format("shuffle {}", position_.epoch));
  data::shuffle(std::span(order_), stream);
  shuffled_epoch_ = position_.epoch;
}

}  // namespace starling::data
