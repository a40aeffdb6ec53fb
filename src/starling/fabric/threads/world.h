// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a ThreadsFabric share.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "starling/base/notifier.h"
#include "starling/fabric/fabric.h"
#include "starling/fabric/mailbox.h"

namespace starling::fabric::threads {

class SharedAllReduce;

struct Inbox {
  explicit Inbox(int senders) : mailbox(senders) {}

  std::mutex mutex;
  Mailbox mailbox;          // Guarded by mutex.
  int blocked_senders = 0;  // Guarded by mutex: how many wait for room.
  Notifier arrived;
  Notifier drained;
};

struct WindowMemory {
  struct AlignedDelete {
    void operator()(float* memory) const;
  };

  WindowMemory(std::string name, Rank home, std::size_t size);

  std::string name;
  Rank home;
  std::size_t size;
  std::unique_ptr<float[], AlignedDelete> floats;
};

class World {
 public:
  explicit World(const FabricOptions& options);
  ~World();

  const FabricOptions& options() const { return options_; }
  bool spin() const { return spin_; }

  Time now() const { return std::chrono::duration_cast<Duration>(Notifier::Clock::now() - start_) + options_.start_time; }
  Notifier::Clock::time_point real_time(Time time) const;

  Inbox& inbox(Rank rank) { return *inboxes_[static_cast<std::size_t>(rank)]; }

  // Departures. A rank announces its own, after its last send.
  void announce(Rank rank, PeerState state);
  PeerState state(Rank rank) const { return states_[static_cast<std::size_t>(rank)].load(); }
  std::size_t departure_count() const { return departure_count_.load(); }
  std::vector<Departure> departures() const;

  // The window's memory, created if this is its home; null if the home has not opened it yet.
  std::shared_ptr<WindowMemory> find_window(std::string_view name, std::size_t size, Rank home, bool create);
  Notifier& windows_changed() { return windows_changed_; }

  // The meeting place of a group for its native all-reduce, made by the first member that asks.
  SharedAllReduce& all_reduce_site(const Group& group);

 private:
  const FabricOptions options_;
  const bool spin_;
  const Notifier::Clock::time_point start_;
  std::vector<std::unique_ptr<Inbox>> inboxes_;

  std::vector<std::atomic<PeerState>> states_;
  std::atomic<std::size_t> departure_count_{0};

  mutable std::mutex mutex_;  // Guards everything below.
  std::vector<Departure> departures_;
  std::vector<std::shared_ptr<WindowMemory>> windows_;
  std::vector<std::unique_ptr<SharedAllReduce>> sites_;

  Notifier windows_changed_;
};

}  // namespace starling::fabric::threads
