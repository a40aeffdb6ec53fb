// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The order in which a worker sees its samples: shuffled anew every epoch, from the run's seed alone.
//
//   BatchOrder order(partition, seed, rank);
//   while (order.epoch() < 3) {
//     Batch batch{.samples = &train, .indices = order.next(64), .number = order.number()};
//     ...
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace starling::data {

// Not thread-safe. Where it stands is three numbers, so that a checkpoint holds it.
class BatchOrder {
 public:
  struct Position {
    std::uint64_t epoch = 0;   // Epochs completed.
    std::uint64_t sample = 0;  // Samples given out in this epoch.
    std::uint64_t number = 0;  // Batches given out since the start.

    bool operator==(const Position&) const = default;
  };

  // `indices` are the samples of this worker (see partition.h); not empty (checked).
  BatchOrder(std::vector<std::uint32_t> indices, std::uint64_t seed, std::uint32_t rank);

  // The next at most `size` indices; fewer at the end of an epoch, which next() never crosses. Valid until the next call.
  std::span<const std::uint32_t> next(std::size_t size);

  std::uint64_t epoch() const { return position_.epoch; }    // Epochs completed: one more once the last sample of an epoch was given out.
  std::uint64_t number() const { return position_.number; }  // Batches given out.
  std::size_t samples_per_epoch() const { return indices_.size(); }

  const Position& position() const { return position_; }
  void seek(const Position& position);

 private:
  void shuffle();

  std::vector<std::uint32_t> indices_;  // Sorted as given.
  std::vector<std::uint32_t> order_;    // Of the epoch shuffled_epoch_.
  std::uint64_t seed_;
  std::uint32_t rank_;
  std::uint64_t shuffled_epoch_ = ~std::uint64_t{0};
  Position position_;
};

}  // namespace starling::data
