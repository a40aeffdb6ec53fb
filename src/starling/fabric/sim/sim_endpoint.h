// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One rank of a SimFabric, in one of its incarnations.
#pragma once

#include "starling/fabric/endpoint.h"
#include "starling/fabric/sim/world.h"

namespace starling::fabric::sim {

class SimEndpoint final : public Endpoint {
 public:
  SimEndpoint(World& world, RankState& state) : world_(world), state_(state) {}

  Rank rank() const override { return state_.rank; }
  int size() const override { return world_.options().ranks; }
  int incarnation() const override { return state_.incarnation; }
  Time now() const override { return world_.now(); }
  void sleep(Duration duration) override;
  void compute(double units, FunctionRef<void()> work) override;
  void pass(std::string_view point) override;

  Status send(Rank to, Tag tag, Payload payload, Deadline deadline) override;
  bool offer(Rank to, Tag tag, Payload payload) override;
  Result<Message> receive(const Filter& filter, Deadline deadline) override;
  std::optional<Message> poll(const Filter& filter) override;

  Result<std::shared_ptr<Window>> open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) override;

  Status realign(std::uint64_t number, Deadline deadline) override;

  PeerState peer(Rank rank) const override { return world_.rank(rank).seen_as; }
  std::vector<Departure> departures() const override;
  Traffic traffic() const override { return state_.traffic; }
  RandomStream random(std::string_view purpose) const override {
    return {world_.options().seed, static_cast<std::uint32_t>(state_.rank), purpose};
  }

 private:
  World& world_;
  RankState& state_;
};

}  // namespace starling::fabric::sim
