// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The same piece of work several times on the threads of a pool.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <vector>

#include "starling/base/work_pool.h"

namespace starling::lab {

// Calls body(0) … body(count - 1), as many at a time as the pool has threads, and returns when all have ended. Throws what the first of
// them threw, if any did.
inline void run_parallel(WorkPool& pool, int count, const std::function<void(int)>& body) {
  std::vector<std::function<void()>> calls;
  calls.reserve(static_cast<std::size_t>(count));
  std::deque<WorkPool::Job> jobs;  // They stay where they are.
  for (int i = 0; i < count; ++i) {
    calls.emplace_back([&body, i] { body(i); });
    pool.submit(jobs.emplace_back(calls.back()));
  }
  std::exception_ptr first;
  for (WorkPool::Job& job : jobs) {
    const std::exception_ptr error = pool.finish(job);
    if (error && !first) first = error;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace starling::lab
