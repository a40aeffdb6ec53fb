// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/notifier.h"

#include <sched.h>

#include <thread>

namespace starling {

// Taking the lock makes sure that a sleeper that has looked at its condition is really asleep.
void Notifier::wake_sleepers() {
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace starling
