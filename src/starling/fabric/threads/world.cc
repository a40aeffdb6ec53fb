// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/threads/world.h"

#include <algorithm>
#include <new>

#include "starling/fabric/threads/shared_all_reduce.h"

namespace starling::fabric::threads {

void WindowMemory::AlignedDelete::operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{Payload::kAlignment}); }

WindowMemory::WindowMemory(std::string name_, Rank home_, std::size_t size_)
    : name(std::move(name_)), home(home_), size(size_), floats(new (std::align_val_t{Payload::kAlignment}) float[size_]()) {}

World::World(const FabricOptions& options)
    : options_(options),
      spin_(options.ranks <= usable_cores()),
      start_(Notifier::Clock::now()),
      states_(static_cast<std::size_t>(options.ranks)) {
  for (std::atomic<PeerState>& state : states_) state = PeerState::alive;
  for (int rank = 0; rank < options.ranks; ++rank) inboxes_.push_back(std::make_unique<Inbox>(options.ranks));
}

World::~World() = default;

Notifier::Clock::time_point World::real_time(Time time) const {
  // Far enough for anybody, and safe from overflow in the clock's own arithmetic.
  constexpr Time kFarAway = std::chrono::hours(24 * 365);
  return start_ + std::min(time - options_.start_time, kFarAway);
}

void World::announce(Rank rank, PeerState state) {
  {
    const std::lock_guard lock(mutex_);
    departures_.push_back({rank, state, now()});
    states_[static_cast<std::size_t>(rank)] = state;
    departure_count_ = departures_.size();
    for (const auto& site : sites_) site->wake();
  }
  for (const auto& inbox : inboxes_) {
    inbox->arrived.notify();
    inbox->drained.notify();
  }
  windows_changed_.notify();
}

std::vector<Departure> World::departures() const {
  const std::lock_guard lock(mutex_);
  return departures_;
}

std::shared_ptr<WindowMemory> World::find_window(std::string_view name, std::size_t size, Rank home, bool create) {
  const std::lock_guard lock(mutex_);
  for (const auto& window : windows_) {
    if (window->name == name && window->home == home) return window;
  }
  if (!create) return nullptr;
  windows_.push_back(std::make_shared<WindowMemory>(std::string(name), home, size));
  return windows_.back();
}

SharedAllReduce& World::all_reduce_site(const Group& group) {
  const std::lock_guard lock(mutex_);
  for (const auto& site : sites_) {
    if (site->group() == group) return *site;
  }
  sites_.push_back(std::make_unique<SharedAllReduce>(group, *this));
  return *sites_.back();
}

}  // namespace starling::fabric::threads
