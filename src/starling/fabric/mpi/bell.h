// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What wakes a process that sleeps, in memory that processes share: take a ticket, look, and wait until the ticket is out of date. A ring
// between the look and the wait is never missed. Without a sleeper, ring() makes no system call.
//
//   const std::uint32_t ticket = bell.ticket();
//   if (ready()) return;
//   bell.wait(ticket, limit);                          // The other side: change; bell.ring();
#pragma once

#include <atomic>
#include <cstdint>

#include "starling/base/time.h"

namespace starling::fabric::mpi {

// Zeros are a bell that has never rung.
class alignas(64) Bell {
 public:
  std::uint32_t ticket() const { return rings_.load(); }

  void ring() {
    rings_.fetch_add(1);
    if (sleepers_.load() > 0) wake();
  }

  // Returns when the ticket is out of date or the time has passed, and sometimes sooner.
  void wait(std::uint32_t ticket, Duration limit);

 private:
  void wake();

  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "a lock in shared memory would be one of this process alone");

}  // namespace starling::fabric::mpi
