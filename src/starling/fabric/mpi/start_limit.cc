// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/start_limit.h"

#include <utility>

namespace starling::fabric::mpi {

StartLimit::StartLimit(Duration limit, std::function<void()> late)
    : thread_([this, limit, late = std::move(late)] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit, [this] { return over_; })) return;
        lock.unlock();
        late();
      }) {}

StartLimit::~StartLimit() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace starling::fabric::mpi
