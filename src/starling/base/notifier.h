// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The wait under every queue and barrier of the thread fabric. Thread-safe. Two ways to use it:
//
// A condition guarded by a lock of its own: take a ticket, look, and wait until the ticket is out of date. A change between
// the look and the wait is never missed.
//
//   for (;;) {
//     const std::uint32_t ticket = notifier.ticket();
//     if (ready()) return true;                                       // The other side: change; notifier.notify();
//     if (!notifier.wait(ticket, deadline, spin)) return false;
//   }
//
// A condition on atomics that are changed with sequentially consistent order: wait_until() it, and call wake() after the change.
//
// Without a sleeper, neither notify() nor wake() makes a system call.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace starling {

// Tells the processor that this is a spin loop.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The number of cores this process may use, which in a container is fewer than the machine has.
int usable_cores();

class Notifier {
 public:
  using Clock = std::chrono::steady_clock;

  std::uint32_t ticket() const { return changes_.load(); }

  // Makes every ticket taken so far out of date. What the caller wrote before is visible to whoever wakes.
  void notify() {
    changes_.fetch_add(1);
    wake();
  }

  // Returns true as soon as `ticket` is out of date, false when the deadline has passed; see wait_until() for `spin`.
  bool wait(std::uint32_t ticket, Clock::time_point deadline, bool spin) {
    return wait_until([&] { return changes_.load() != ticket; }, deadline, spin);
  }

  // Makes sleepers look at their condition again.
  void wake() {
    // Sequentially consistent, as are the change before and the counting in sleep_until(): either this sees the sleeper, or the
    // sleeper sees the change.
    if (sleepers_.load() > 0) wake_sleepers();
  }

  // Returns true as soon as `ready()` is, false when the deadline has passed. With `spin` it keeps the processor for kSpinTime before
  // it sleeps, which saves the wake-up when the change is near; only right where every waiter has a core to itself.
  template <class Ready>
  bool wait_until(Ready ready, Clock::time_point deadline, bool spin) {
    if (ready()) return true;
    if (spin) {
      const Clock::time_point end = std::min(deadline, Clock::now() + kSpinTime);
      do {
        for (int i = 0; i < 64; ++i) {
          if (ready()) return true;
          spin_pause();
        }
      } while (Clock::now() < end);
    }
    return sleep_until(ready, deadline);
  }

 private:
  // About what it costs to put a thread to sleep and wake it again.
  static constexpr auto kSpinTime = std::chrono::microseconds(50);

  template <class Ready>
  bool sleep_until(Ready ready, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    const bool in_time = wake_.wait_until(lock, deadline, ready);
    sleepers_.fetch_sub(1);
    return in_time;
  }

  void wake_sleepers();

  std::atomic<std::uint32_t> changes_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace starling
