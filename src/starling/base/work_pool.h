// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Threads that run independent pieces of arithmetic for one caller. The caller's own thread counts as one of them: while it waits for
// a job it runs queued jobs itself, so a pool of one thread starts no thread at all, and a pool of two keeps two cores busy.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "starling/base/function_ref.h"

namespace starling {

// submit() and finish() are called by one thread, the owner; the work runs on any thread of the pool.
class WorkPool {
 public:
  // One piece of work. It stays where it is from submit() to finish(), and so must everything the work refers to.
  class Job {
   public:
    explicit Job(FunctionRef<void()> work) : work_(work) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

   private:
    friend class WorkPool;
    FunctionRef<void()> work_;
    bool done_ = false;
    std::exception_ptr error_;
  };

  // `threads` counts the owner; it is at least 1. There may be fewer if the system refuses to start so many.
  explicit WorkPool(int threads);
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  void submit(Job& job);

  // Returns when the job is done. Whatever the work threw is returned, not thrown.
  std::exception_ptr finish(Job& job);

 private:
  void help();
  static void run(Job& job);

  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable finished_;
  std::deque<Job*> queue_;
  bool stopping_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace starling
