// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A limit for calls that wait for other processes and know none themselves, as MPI_Init and MPI_Finalize.
//
//   const StartLimit limit(std::chrono::minutes(5), [] { ... end the process ... });
//   MPI_Init_thread(...);
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "starling/base/time.h"

namespace starling::fabric::mpi {

// If it still lives when the time is over, `late` is called once, on another thread.
class StartLimit {
 public:
  StartLimit(Duration limit, std::function<void()> late);
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;
  ~StartLimit();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace starling::fabric::mpi
