// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The rank of this process in an MPI fabric, for one run.
#pragma once

#include <memory>
#include <vector>

#include "starling/fabric/endpoint.h"
#include "starling/fabric/mpi/host_all_reduce.h"
#include "starling/fabric/mpi/windows.h"
#include "starling/fabric/mpi/world.h"
#include "starling/fabric/point_delays.h"

namespace starling::fabric::mpi {

class MpiEndpoint final : public Endpoint {
 public:
  explicit MpiEndpoint(World& world)
      : world_(world), speed_(world.options().speed(world.rank())), delays_(world.options(), world.rank()), host_all_reduce_(world) {}

  Rank rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  Time now() const override { return world_.now(); }
  void sleep(Duration duration) override;
  void compute(double units, FunctionRef<void()> work) override;
  void pass(std::string_view point) override;

  Status send(Rank to, Tag tag, Payload payload, Deadline deadline) override;
  Result<Message> receive(const Filter& filter, Deadline deadline) override;
  std::optional<Message> poll(const Filter& filter) override;

  Result<std::shared_ptr<Window>> open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) override;

  PeerState peer(Rank rank) const override;
  std::vector<Departure> departures() const override;
  Traffic traffic() const override { return traffic_; }
  RandomStream random(std::string_view purpose) const override {
    return {world_.options().seed, static_cast<std::uint32_t>(world_.rank()), purpose};
  }
  void show_progress(const std::atomic<std::uint64_t>* counter) override { world_.show_progress(counter); }
  std::uint64_t others_progress() const override { return world_.others_progress(); }
  std::optional<Status> native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) override;

 private:
  Time limit(Deadline deadline, Time begin) const { return deadline.resolve(begin, world_.options().timeout); }
  void received(const Message& message);
  bool nobody_can_send(const Filter& filter) const;
  Failure lost(const Filter& filter, Time begin) const;
  Status library_all_reduce(std::span<float> values, Deadline deadline);

  World& world_;
  const double speed_;
  PointDelays delays_;
  Traffic traffic_;
  HostAllReduce host_all_reduce_;
  std::vector<float> library_sums_;
  std::vector<std::unique_ptr<WindowMemory>> own_windows_;
};

}  // namespace starling::fabric::mpi
