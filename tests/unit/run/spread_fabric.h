// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Ranks as if they lived in several processes, without any: every rank has a fabric of its own, which has but that one rank, and threads
// stand for processes. Their runs come together in one run of a fabric of threads.
//
//   SpreadRanks ranks({.ranks = 3});
//   ranks.each([&](fabric::Fabric& fabric) { ... fabric.local_ranks() ... fabric.run(body) ... });
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "starling/fabric/threads/threads_fabric.h"

namespace starling::fabric {

// Passes everything on, and shows others how far this rank is, as a fabric of several processes does.
class SpreadEndpoint final : public Endpoint {
 public:
  using Board = std::vector<std::atomic<const std::atomic<std::uint64_t>*>>;

  SpreadEndpoint(Endpoint& endpoint, Board& board) : endpoint_(endpoint), board_(board) {}
  ~SpreadEndpoint() override { board_[static_cast<std::size_t>(endpoint_.rank())] = nullptr; }

  Rank rank() const override { return endpoint_.rank(); }
  int size() const override { return endpoint_.size(); }
  Time now() const override { return endpoint_.now(); }
  void sleep(Duration duration) override { endpoint_.sleep(duration); }
  void compute(double units, FunctionRef<void()> work) override { endpoint_.compute(units, work); }
  void pass(std::string_view point) override { endpoint_.pass(point); }
  Status send(Rank to, Tag tag, Payload payload, Deadline deadline) override {
    return endpoint_.send(to, tag, std::move(payload), deadline);
  }
  bool offer(Rank to, Tag tag, Payload payload) override { return endpoint_.offer(to, tag, std::move(payload)); }
  Result<Message> receive(const Filter& filter, Deadline deadline) override { return endpoint_.receive(filter, deadline); }
  std::optional<Message> poll(const Filter& filter) override { return endpoint_.poll(filter); }
  Result<std::shared_ptr<Window>> open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) override {
    return endpoint_.open_window(name, size, home, deadline);
  }
  PeerState peer(Rank rank) const override { return endpoint_.peer(rank); }
  std::vector<Departure> departures() const override { return endpoint_.departures(); }
  Traffic traffic() const override { return endpoint_.traffic(); }
  RandomStream random(std::string_view purpose) const override { return endpoint_.random(purpose); }
  std::optional<Status> native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) override {
    return endpoint_.native_all_reduce(group, values, deadline);
  }

  void show_progress(const std::atomic<std::uint64_t>* counter) override { board_[static_cast<std::size_t>(rank())] = counter; }
  std::uint64_t others_progress() const override {
    std::uint64_t sum = 0;
    for (Rank other = 0; other < size(); ++other) {
      const std::atomic<std::uint64_t>* counter = board_[static_cast<std::size_t>(other)];
      if (other != rank() && counter != nullptr) sum += counter->load();
    }
    return sum;
  }

 private:
  Endpoint& endpoint_;
  Board& board_;
};

class SpreadRanks {
 public:
  explicit SpreadRanks(FabricOptions options)
      : fabric_(options), bodies_(static_cast<std::size_t>(options.ranks)), board_(bodies_.size()) {}

  // Calls `process` once for each rank, on a thread of its own, with the fabric that has it. Throws what the first of them threw, if
  // any did; `thrown` has it for each.
  void each(const std::function<void(Fabric&)>& process) {
    std::vector<std::thread> threads;
    thrown.assign(bodies_.size(), nullptr);
    for (std::size_t rank = 0; rank < bodies_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        OneRank one(*this, static_cast<Rank>(rank));
        try {
          process(one);
        } catch (...) {
          thrown[rank] = std::current_exception();
        }
        leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::exception_ptr> thrown{};

 private:
  class OneRank final : public Fabric {
   public:
    OneRank(SpreadRanks& all, Rank rank) : all_(all), rank_(rank) {}
    int size() const override { return all_.fabric_.size(); }
    std::vector<Rank> local_ranks() const override { return {rank_}; }
    RunReport run(const Body& body) override { return all_.run(rank_, body); }

   private:
    SpreadRanks& all_;
    Rank rank_;
  };

  // The last to come runs the bodies of all, and nobody leaves before that has ended.
  RunReport run(Rank rank, const Body& body) {
    std::unique_lock lock(mutex_);
    if (left_ > 0) throw std::runtime_error("a rank begins a run that another one is no longer there for");
    bodies_[static_cast<std::size_t>(rank)] = &body;
    const std::uint64_t number = runs_;
    if (++waiting_ == bodies_.size()) {
      report_ = fabric_.run([&](Endpoint& endpoint) {
        SpreadEndpoint spread(endpoint, board_);
        return (*bodies_[static_cast<std::size_t>(endpoint.rank())])(spread);
      });
      waiting_ = 0;
      ++runs_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return runs_ != number || left_ > 0; });
    if (runs_ == number) throw std::runtime_error("another rank has left before this run");
    return {.outcomes = {report_.outcomes[static_cast<std::size_t>(rank)]}};
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    ++left_;
    changed_.notify_all();
  }

  ThreadsFabric fabric_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Body*> bodies_;
  SpreadEndpoint::Board board_;
  std::size_t waiting_ = 0;
  std::size_t left_ = 0;
  std::uint64_t runs_ = 0;
  RunReport report_;
};

}  // namespace starling::fabric
