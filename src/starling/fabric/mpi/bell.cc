// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace starling::fabric::mpi {

// Not the private form of the futex: the sleepers are in other processes.
void Bell::wait(std::uint32_t ticket, Duration limit) {
  if (limit <= Duration::zero()) return;
  const timespec time{.tv_sec = limit.count() / 1'000'000'000, .tv_nsec = limit.count() % 1'000'000'000};
  sleepers_.fetch_add(1);
  ::syscall(SYS_futex, &rings_, FUTEX_WAIT, ticket, &time, nullptr, 0);
  sleepers_.fetch_sub(1);
}

void Bell::wake() { ::syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace starling::fabric::mpi
