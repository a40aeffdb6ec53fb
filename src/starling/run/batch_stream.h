// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The batches of a run as one stream, from which whoever is ready takes the next: the generator of a strategy that has one, or with the
// partition `queue` the workers themselves. An epoch is one pass over the whole set, in the order in which one worker alone would see it;
// how many of its batches a worker computes depends on how fast it is.
//
//   BatchStream stream(indices, seed, schedule, [&](const Position& position) { return may_go_on(position); });
//   stream.open();                                  // A new stretch begins.
//   while (std::optional<strategy::Assignment> batch = stream.next()) ...
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "starling/data/batches.h"
#include "starling/optim/schedule.h"
#include "starling/strategy/strategy.h"

namespace starling::run {

// Thread-safe.
class BatchStream final : public strategy::BatchSource {
 public:
  using Position = data::BatchOrder::Position;

  // `may_go_on` is asked before every batch, with where the stream stands; once it says no, the stream pauses until it is opened again.
  BatchStream(std::vector<std::uint32_t> indices, std::uint64_t seed, const optim::Schedule& schedule,
              std::function<bool(const Position&)> may_go_on)
      : order_(std::move(indices), seed, 0), schedule_(schedule), may_go_on_(std::move(may_go_on)) {}

  std::optional<strategy::Assignment> next() override {
    const std::lock_guard lock(mutex_);
    return assigned(advance());
  }

  // The batch of this number, counted from 0 since the stream was opened; those before it are others'. How processes with a copy of the
  // stream each take from it in common: numbers are dealt out, and every process finds its batches by them. Numbers grow from call to call.
  std::optional<strategy::Assignment> next_numbered(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    while (order_.position().number < opened_at_ + number) {
      if (!advance()) return std::nullopt;
    }
    return assigned(advance());
  }

  // When nobody takes batches.
  void open() {
    paused_ = false;
    opened_at_ = order_.position().number;
  }
  const Position& position() const { return order_.position(); }
  void seek(const Position& position) { order_.seek(position); }

 private:
  using Indices = std::optional<std::span<const std::uint32_t>>;

  Indices advance() {
    const Position& position = order_.position();
    if (paused_ || !may_go_on_(position)) {
      paused_ = true;
      return std::nullopt;
    }
    const double samples = static_cast<double>(order_.samples_per_epoch());
    const double epoch = static_cast<double>(position.epoch) + static_cast<double>(position.sample) / samples;
    return order_.next(schedule_.batch(epoch));
  }

  std::optional<strategy::Assignment> assigned(const Indices& indices) const {
    if (!indices) return std::nullopt;
    return strategy::Assignment{.epoch = order_.position().epoch,
                                .sample = order_.position().sample,
                                .number = order_.position().number,
                                .indices = {indices->begin(), indices->end()}};
  }

  std::mutex mutex_;
  data::BatchOrder order_;
  const optim::Schedule& schedule_;
  std::function<bool(const Position&)> may_go_on_;
  bool paused_ = false;
  std::uint64_t opened_at_ = 0;  // Batches given out before.
};

}  // namespace starling::run
