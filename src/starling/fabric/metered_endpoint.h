// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// An endpoint that passes everything on to another and notes how long the rank waited and how much it sent, windows and native collectives
// included.
//
//   MeteredEndpoint metered(endpoint);
//   strategy.exchange(...);                   // On `metered`.
//   metered.waited();                         // So far.
//
// What counts as waiting: the time inside receive(), inside send() (next to nothing, unless it finds no room), and inside a native
// all-reduce beyond the shortest one of that length so far (who comes last does not wait, so the shortest is what the work itself takes);
// all of one that failed. Operations on windows wait for nobody.
//
// What is done directly in the shared memory of a window (Window::shared_memory) is not seen, and not counted.
//
// Thread-safety: as the endpoint's. It must outlive this one; windows may be kept longer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "starling/fabric/endpoint.h"

namespace starling::fabric {

class MeteredEndpoint final : public Endpoint {
 public:
  explicit MeteredEndpoint(Endpoint& endpoint) : endpoint_(endpoint) {}

  Duration waited() const { return waited_; }
  // Messages, what was written and added to windows elsewhere or read from them, and 2 (n-1)/n of the vector for a native all-reduce of n.
  std::uint64_t bytes_moved() const;
  // From now on every message that is sent puts `base` and the bytes moved since now into `where`, for others to see; nullptr ends that.
  void publish(std::atomic<std::uint64_t>* where, std::uint64_t base);
  // From now on `look` is called after every receive(): how a rank that only serves gets to see to other things. An empty one ends that.
  void after_receive(std::function<void()> look) { after_receive_ = std::move(look); }

  Rank rank() const override { return endpoint_.rank(); }
  int size() const override { return endpoint_.size(); }
  int incarnation() const override { return endpoint_.incarnation(); }
  Time now() const override { return endpoint_.now(); }
  void sleep(Duration duration) override { endpoint_.sleep(duration); }
  void compute(double units, FunctionRef<void()> work) override { endpoint_.compute(units, work); }
  void pass(std::string_view point) override { endpoint_.pass(point); }
  Status send(Rank to, Tag tag, Payload payload, Deadline deadline) override;
  bool offer(Rank to, Tag tag, Payload payload) override { return endpoint_.offer(to, tag, std::move(payload)); }
  Result<Message> receive(const Filter& filter, Deadline deadline) override;
  std::optional<Message> poll(const Filter& filter) override { return endpoint_.poll(filter); }
  Result<std::shared_ptr<Window>> open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) override;
  PeerState peer(Rank rank) const override { return endpoint_.peer(rank); }
  std::vector<Departure> departures() const override { return endpoint_.departures(); }
  Traffic traffic() const override { return endpoint_.traffic(); }
  void show_progress(const std::atomic<std::uint64_t>* counter) override { endpoint_.show_progress(counter); }
  std::uint64_t others_progress() const override { return endpoint_.others_progress(); }
  RandomStream random(std::string_view purpose) const override { return endpoint_.random(purpose); }
  Status realign(std::uint64_t number, Deadline deadline) override { return endpoint_.realign(number, deadline); }
  std::optional<Status> native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) override;

 private:
  Endpoint& endpoint_;
  Duration waited_ = Duration::zero();
  std::shared_ptr<std::uint64_t> window_bytes_ = std::make_shared<std::uint64_t>(0);
  std::uint64_t reduced_bytes_ = 0;
  std::atomic<std::uint64_t>* published_ = nullptr;
  std::function<void()> after_receive_{};
  std::uint64_t published_base_ = 0;  // Less what had been moved before; it may wrap around.
  std::map<std::size_t, Duration> shortest_reduce_{};
};

}  // namespace starling::fabric
