// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What one process of an MPI fabric knows and does: its mailbox and what it may still send to whom, who is gone, which windows there are;
// and a second thread, which keeps MPI going while the rank computes and notices when another process is no longer heard of.
//
// One lock is around all of MPI and all that is below it here (MPI_THREAD_SERIALIZED). Nobody blocks in MPI with it, except in operations
// on one-sided windows, during which MPI keeps going by itself; how long that takes, the other thread can see without the lock.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "starling/base/notifier.h"
#include "starling/fabric/fabric.h"
#include "starling/fabric/mailbox.h"
#include "starling/fabric/mpi/host_memory.h"
#include "starling/fabric/mpi/members.h"
#include "starling/fabric/mpi/memory_file.h"
#include "starling/fabric/mpi/options.h"
#include "starling/fabric/mpi/post.h"

namespace starling::fabric::mpi {

// A window that its home has opened, as everybody is told.
struct OpenedWindow {
  std::string name{};
  Rank home = 0;
  std::uint64_t floats = 0;
  MemoryFile::Place place{};  // Where it is shared memory.
  std::uint64_t address = 0;  // Where it is one-sided: at its home.
};

class World {
 public:
  using Clock = Notifier::Clock;
  using Lock = std::unique_lock<std::mutex>;

  // Called by all processes of the job together, each within `start_timeout` of the first. `members` outlives it. `unreachable` is called
  // on any thread, once, with a sentence that names a rank which is no longer heard of, or does not come; it ends the process. `number`
  // counts the worlds of the job.
  World(const Members& members, const FabricOptions& options, const MpiOptions& mpi_options, std::uint64_t number, Duration start_timeout,
        std::function<void(const std::string&)> unreachable);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // By all processes together, unless it is broken.
  ~World();

  // A run of the fabric, by all processes together. Throws std::runtime_error if one does not come.
  void begin_run();
  // This rank has ended, and waits for the others. Returns how each of them ended. When any has failed it waits only as long as the others
  // need to say so, and after that the world is broken.
  RunReport end_run(RankOutcome outcome);
  bool is_broken() const { return broken_; }
  // What cannot be undone has gone wrong: the processes will not come together again.
  void break_down() { broken_ = true; }
  // Memory that MPI may still write to, until the end of the process.
  void keep_until_the_end(std::vector<float> memory) { kept_->push_back(std::move(memory)); }

  const Members& members() const { return members_; }
  const FabricOptions& options() const { return options_; }
  const MpiOptions& mpi_options() const { return mpi_options_; }
  Rank rank() const { return members_.rank; }
  int size() const { return members_.size; }
  bool spin() const { return members_.core_for_each; }
  HostMemory* host_memory() { return host_memory_.get(); }
  // Windows are memory that the ranks share.
  bool windows_are_shared() const { return windows_are_shared_; }
  MPI_Win one_sided() const { return one_sided_; }

  Time now() const { return std::chrono::duration_cast<Duration>(Clock::now() - start_) + options_.start_time; }

  Lock lock() { return Lock(mutex_); }

  // Looks at what has arrived until `ready()`, which is called with the lock held, or until `limit`; false in that case. For what MPI does
  // by itself, of which no bell tells, it looks `often`.
  template <class Ready>
  bool wait(Ready ready, Time limit, bool often = false);

  // With the lock held: runs a blocking operation of MPI's on the window at `home`, under the eyes of the other thread.
  template <class Operation>
  void operate(Rank home, Operation operation) {
    operation_since_.store(Clock::now().time_since_epoch());
    const Mark mark(operation_at_, home, kAnyRank);
    operation();
  }

  // With the lock held, between operations that take long one after the other: what the other thread would do for those who listen. It
  // takes the lock only when it is free for a while.
  void keep_in_touch();

  // With the lock held.
  bool has_room(Rank to, std::size_t payload_bytes) const;
  void send(Rank to, Tag tag, Payload payload);
  void ask_for_room(Rank to);
  Taken unread(Rank at) const;  // Of what this rank has sent there.
  std::optional<Message> take(const Filter& filter);
  PeerState state(Rank rank) const { return states_[static_cast<std::size_t>(rank)]; }
  const std::vector<Departure>& departures() const { return departures_; }
  const OpenedWindow* find_window(std::string_view name, Rank home) const;
  void announce_window(OpenedWindow window);

  // With the lock held: this rank begins another all-reduce of MPI's own, its how manieth in this run; and how many one that is gone had
  // begun.
  std::uint64_t begin_library_call() { return ++library_calls_; }
  std::uint64_t library_calls(Rank gone) const { return peer(gone).library_calls; }

  void show_progress(const std::atomic<std::uint64_t>* counter);
  std::uint64_t others_progress();

 private:
  // Shows something to the other thread for as long as it lives, also when an exception ends that.
  template <class T>
  class Mark {
   public:
    Mark(std::atomic<T>& place, T value, T afterwards) : place_(place), afterwards_(afterwards) {
      place_.store(value, std::memory_order_release);
    }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    ~Mark() { place_.store(afterwards_, std::memory_order_release); }

   private:
    std::atomic<T>& place_;
    const T afterwards_;
  };

  struct Peer {
    Taken sent{};   // To it, in all,
    Taken taken{};  // and what it has taken of that, as far as heard.
    Taken given{};  // From it: what has been taken here,
    Taken told{};   // and what it knows of that.
    std::uint64_t sequence = 0;
    bool asked = false;  // For room, and not answered yet.
    bool wants = false;  // It waits for room here.
    std::uint64_t progress = 0;
    std::uint64_t begun = 0;          // Runs.
    std::uint64_t library_calls = 0;  // When it departed.
    Clock::time_point heard{};
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  // With the lock held.
  void progress();
  void accept(Arrival& arrival);
  void accept_departure(const Arrival& arrival);
  void accept_window(const Arrival& arrival);
  void post(Rank to, Kind kind, Tag tag, Payload payload, std::uint64_t sequence = 0);
  void tell_taken(Rank to);
  std::string pulse(Clock::time_point now);
  void send_pulses();
  std::string silent_rank(Clock::time_point now) const;
  std::string place_of(Rank rank) const;

  void nap(std::uint32_t ticket, Clock::time_point begin, Time limit, bool busy);
  void keep_going();
  void stop_keeping();
  void abandon();
  std::string keep();
  std::string hanging_operation() const;
  std::string silence_text(Rank rank, Duration time) const;
  Duration keeping_interval() const;
  bool everybody_departed() const { return departures_.size() + 1 == static_cast<std::size_t>(size()); }
  void meet_all(Duration limit);
  void fall_silent();
  std::string late_ranks();
  void await_everybody() const;
  void make_shared_parts(std::uint64_t number);
  bool can_map_each_other() const;

  const Members& members_;
  const FabricOptions options_;
  const MpiOptions mpi_options_;
  const std::function<void(const std::string&)> unreachable_;
  const Duration silence_;  // After which a rank is taken for lost.
  const Duration start_timeout_;
  std::unique_ptr<HostMemory> host_memory_;
  bool windows_are_shared_ = false;
  MPI_Win one_sided_ = MPI_WIN_NULL;
  Clock::time_point start_ = Clock::now();
  bool broken_ = false;
  std::unique_ptr<std::vector<std::vector<float>>> kept_ = std::make_unique<std::vector<std::vector<float>>>();

  std::mutex mutex_;  // Guards MPI and everything below.
  std::unique_ptr<Post> post_;
  std::vector<Arrival> arrivals_;
  Mailbox mailbox_;
  std::vector<Peer> peers_;
  std::vector<PeerState> states_;
  std::vector<Departure> departures_;
  std::vector<RankOutcome> outcomes_;
  std::vector<OpenedWindow> windows_;
  const std::atomic<std::uint64_t>* progress_ = nullptr;
  std::uint64_t others_progress_ = 0;
  Clock::time_point next_pulse_{};
  std::uint64_t run_ = 0;
  std::uint64_t begun_ = 0;
  std::uint64_t library_calls_ = 0;
  bool watching_ = false;  // Over the others, and showing them that this one lives.

  std::atomic<bool> rank_waits_{false};             // And keeps MPI going itself.
  std::atomic<Rank> operation_at_{kAnyRank};        // The home of the window with which the rank is inside MPI,
  std::atomic<Clock::duration> operation_since_{};  // and since when.

  Duration next_interval_{};  // Of the keeper alone.
  std::mutex stop_mutex_;
  bool stops_ = false;
  std::condition_variable stop_;
  std::thread keeper_;
};

template <class Ready>
bool World::wait(Ready ready, Time limit, bool often) {
  const Clock::time_point begin = Clock::now();
  const Mark mark(rank_waits_, true, false);
  for (bool done = false;;) {
    const std::uint32_t ticket = host_memory_ ? host_memory_->bell(members_.number_here[static_cast<std::size_t>(rank())]).ticket() : 0;
    bool busy = false;
    {
      const Lock lock(mutex_);
      progress();
      done = ready();
      busy = often || post_->is_busy();
    }
    if (done || now() >= limit) return done;
    nap(ticket, begin, limit, busy);
  }
}

}  // namespace starling::fabric::mpi
