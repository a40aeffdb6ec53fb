// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/notifier.h"

#include <sched.h>

#include <cmath>
#include <fstream>
#include <thread>

namespace starling {

// Taking the lock makes sure that a sleeper that has looked at its condition is really asleep.
void Notifier::wake_sleepers() {
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

int usable_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  // A container's share: "QUOTA PERIOD", or "max PERIOD" where there is no limit.
  std::ifstream limit("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (limit >> quota >> period && period > 0) cores = std::min(cores, static_cast<int>(std::ceil(quota / period)));
  return std::max(1, cores);
}

}  // namespace starling
