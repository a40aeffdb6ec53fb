// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/work_pool.h"

#include <algorithm>
#include <system_error>

namespace starling {

WorkPool::WorkPool(int threads) {
  helpers_.reserve(static_cast<std::size_t>(std::max(0, threads - 1)));
  for (int i = 1; i < threads; ++i) {
    try {
      helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error&) {
      return;  // The system has no more threads; those there are, and the owner, do the work.
    }
  }
}

WorkPool::~WorkPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void WorkPool::submit(Job& job) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(&job);
  }
  if (!helpers_.empty()) queued_.notify_one();
}

std::exception_ptr WorkPool::finish(Job& job) {
  std::unique_lock lock(mutex_);
  while (!job.done_) {
    // The awaited job first, so that the owner is not held up by work it could have left to a helper.
    auto next = std::find(queue_.begin(), queue_.end(), &job);
    if (next == queue_.end()) next = queue_.begin();
    if (next == queue_.end()) {
      finished_.wait(lock);
      continue;
    }
    Job& mine = **next;
    queue_.erase(next);
    lock.unlock();
    run(mine);
    lock.lock();
    mine.done_ = true;
  }
  return job.error_;
}

void WorkPool::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    queued_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job& job = *queue_.front();
    queue_.pop_front();
    lock.unlock();
    run(job);
    lock.lock();
    job.done_ = true;
    finished_.notify_all();
  }
}

void WorkPool::run(Job& job) {
  try {
    job.work_();
  } catch (...) {
    job.error_ = std::current_exception();
  }
}

}  // namespace starling
