// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/work_pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <stdexcept>

namespace starling {
namespace {

TEST(WorkPool, RunsEveryJobOnceWhateverItsSize) {
  for (const int threads : {1, 2, 8}) {
    WorkPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> runs(500);
    std::deque<std::function<void()>> work;
    std::deque<WorkPool::Job> jobs;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      work.emplace_back([&runs, i] { ++runs[i]; });
      pool.submit(jobs.emplace_back(work.back()));
    }
    // In another order than they were submitted.
    for (std::size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(pool.finish(jobs[(i * 7) % jobs.size()]), nullptr);
    for (const int count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(WorkPool, ReturnsWhatTheWorkThrew) {
  for (const int threads : {1, 2}) {
    WorkPool pool(threads);
    const auto work = [] { throw std::runtime_error("broken"); };
    WorkPool::Job job(work);
    pool.submit(job);
    const std::exception_ptr error = pool.finish(job);
    ASSERT_NE(error, nullptr);
    EXPECT_THROW(std::rethrow_exception(error), std::runtime_error);
  }
}

}  // namespace
}  // namespace starling
