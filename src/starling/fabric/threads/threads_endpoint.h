// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One rank of a ThreadsFabric.
#pragma once

#include "starling/fabric/endpoint.h"
#include "starling/fabric/point_delays.h"
#include "starling/fabric/threads/shared_all_reduce.h"
#include "starling/fabric/threads/world.h"

namespace starling::fabric::threads {

class ThreadsEndpoint final : public Endpoint {
 public:
  ThreadsEndpoint(World& world, Rank rank)
      : world_(world),
        rank_(rank),
        speed_(world.options().speed(rank)),
        delays_(world.options(), rank),
        sent_to_(static_cast<std::size_t>(world.options().ranks)) {}

  Rank rank() const override { return rank_; }
  int size() const override { return world_.options().ranks; }
  Time now() const override { return world_.now(); }
  void sleep(Duration duration) override;
  void compute(double units, FunctionRef<void()> work) override;
  void pass(std::string_view point) override;

  Status send(Rank to, Tag tag, Payload payload, Deadline deadline) override;
  Result<Message> receive(const Filter& filter, Deadline deadline) override;
  std::optional<Message> poll(const Filter& filter) override;

  Result<std::shared_ptr<Window>> open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) override;

  PeerState peer(Rank rank) const override { return world_.state(rank); }
  std::vector<Departure> departures() const override { return world_.departures(); }
  Traffic traffic() const override { return traffic_; }
  RandomStream random(std::string_view purpose) const override {
    return {world_.options().seed, static_cast<std::uint32_t>(rank_), purpose};
  }
  std::optional<Status> native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) override;

 private:
  bool has_room(const Inbox& inbox, std::size_t payload_bytes) const;
  bool nobody_can_send(const Filter& filter) const;
  Failure lost(const Filter& filter, Time begin) const;

  World& world_;
  const Rank rank_;
  const double speed_;
  PointDelays delays_;
  Traffic traffic_;
  std::vector<std::uint64_t> sent_to_;  // Messages by receiver.
  SharedAllReduce* site_ = nullptr;     // Of the last native all-reduce: the next is most likely over the same group.
};

}  // namespace starling::fabric::threads
