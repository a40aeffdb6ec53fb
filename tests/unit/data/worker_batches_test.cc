// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/worker_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "starling/data/partition.h"

namespace starling::data {
namespace {

constexpr std::uint64_t kSeed = 7;

using Indices = std::vector<std::uint32_t>;

Samples labelled(std::size_t count) {
  constexpr int kClasses = 10;
  Samples samples;
  samples.count = count;
  samples.classes = kClasses;
  for (std::size_t i = 0; i < count; ++i) samples.labels.push_back(static_cast<std::int32_t>(i * 7 % kClasses));
  return samples;
}

std::vector<WorkerBatches> made(std::size_t count, const std::string& specification, int workers) {
  const std::vector<Indices> parts = partition(labelled(count), specification, workers, kSeed);
  std::vector<WorkerBatches> result;
  for (int worker = 0; worker < workers; ++worker) result.emplace_back(parts, specification, worker, kSeed);
  return result;
}

Indices copy(std::span<const std::uint32_t> indices) { return {indices.begin(), indices.end()}; }

// What one worker alone would see.
BatchOrder alone(std::size_t count) {
  Indices all(count);
  std::iota(all.begin(), all.end(), 0U);
  return {all, kSeed, 0};
}

TEST(WorkerBatches, SharedDealsTheOrderOfOneWorkerAlone) {
  constexpr std::size_t kCount = 103;
  for (const int workers : {1, 2, 3, 8}) {
    for (const std::size_t size : {1U, 5U, 16U}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, batch " << size);
      BatchOrder order = alone(kCount);
      std::vector<WorkerBatches> batches = made(kCount, "shared", workers);
      while (order.epoch() < 3) {
        const Indices expected = copy(order.next(size * static_cast<std::size_t>(workers)));
        Indices dealt;
        for (WorkerBatches& worker : batches) {
          const Indices own = copy(worker.next(size).indices);
          dealt.insert(dealt.end(), own.begin(), own.end());
          EXPECT_EQ(worker.progress(), order.position());
        }
        ASSERT_EQ(dealt, expected);
      }
    }
  }
}

TEST(WorkerBatches, WhatIsLeftAtTheEndOfASharedEpochIsDealtEvenlyWithItsShares) {
  std::vector<WorkerBatches> batches = made(14, "shared", 4);  // Two samples each, twice, are 16.
  for (WorkerBatches& worker : batches) {
    const WorkerBatches::Draw draw = worker.next(2);
    EXPECT_EQ(draw.indices.size(), 2U);
    EXPECT_EQ(draw.share, 1);
  }
  std::vector<std::size_t> sizes;
  std::vector<double> shares;
  for (WorkerBatches& worker : batches) {
    const WorkerBatches::Draw draw = worker.next(2);
    sizes.push_back(draw.indices.size());
    shares.push_back(draw.share);
    EXPECT_EQ(worker.progress().epoch, 1U);
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 2, 1, 1}));
  EXPECT_EQ(shares, (std::vector<double>{4.0 / 3, 4.0 / 3, 2.0 / 3, 2.0 / 3}));
}

// The mean of the gradients, each times its share, is then the mean over all samples.
TEST(WorkerBatches, SharesAddUpToTheNumberOfWorkersAndSomeMayHaveNothing) {
  for (std::size_t count = 1; count <= 40; ++count) {
    SCOPED_TRACE(testing::Message() << count << " samples");
    std::vector<WorkerBatches> batches = made(count, "shared", 5);
    while (batches[0].progress().epoch == 0) {
      double sum = 0;
      std::size_t samples = 0;
      std::vector<WorkerBatches::Draw> draws;
      for (WorkerBatches& worker : batches) {
        draws.push_back(worker.next(3));
        sum += draws.back().share;
        samples += draws.back().indices.size();
      }
      EXPECT_DOUBLE_EQ(sum, 5);
      for (const WorkerBatches::Draw& draw : draws) {
        EXPECT_DOUBLE_EQ(draw.share, static_cast<double>(draw.indices.size() * 5) / static_cast<double>(samples));
      }
    }
  }
}

TEST(WorkerBatches, AllWorkersTakeTheSameStepsWhateverTheirPartsLookLike) {
  for (const std::string specification : {"shared", "none", "dataset", "labels", "dirichlet:0.5"}) {
    SCOPED_TRACE(specification);
    std::vector<WorkerBatches> batches = made(203, specification, 3);
    for (int step = 0; step < 100; ++step) {
      for (WorkerBatches& worker : batches) (void)worker.next(8);
      for (const WorkerBatches& worker : batches) {
        EXPECT_EQ(worker.progress(), batches[0].progress());
        EXPECT_EQ(worker.epoch(), batches[0].epoch());
      }
    }
    EXPECT_GT(batches[0].progress().epoch, 2U);
    EXPECT_EQ(batches[0].progress().number, 100U);
  }
}

TEST(WorkerBatches, OtherwiseAWorkerGoesThroughItsOwnPart) {
  const std::vector<Indices> parts = partition(labelled(60), "dataset", 3, kSeed);
  std::vector<WorkerBatches> batches = made(60, "dataset", 3);
  for (std::size_t worker = 0; worker < 3; ++worker) {
    Indices seen;
    while (batches[worker].progress().epoch == 0) {
      const WorkerBatches::Draw draw = batches[worker].next(8);
      EXPECT_EQ(draw.share, 1);
      seen.insert(seen.end(), draw.indices.begin(), draw.indices.end());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, parts[worker]);
  }
}

TEST(WorkerBatches, AnEpochHasTheStepsOfTheMeanPart) {
  const std::vector<Indices> parts{{0, 1}, {2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};  // The mean part has 6 samples.
  for (int worker = 0; worker < 2; ++worker) {
    WorkerBatches batches(parts, "dirichlet:1", worker, kSeed);
    EXPECT_EQ(batches.samples_per_epoch(), 6U);
    std::multiset<std::uint32_t> seen;
    for (int step = 0; step < 30; ++step) {
      const WorkerBatches::Draw draw = batches.next(4);
      EXPECT_FALSE(draw.indices.empty()) << "who has few samples begins again";
      seen.insert(draw.indices.begin(), draw.indices.end());
    }
    EXPECT_EQ(batches.progress().epoch, 15U) << "4 samples, then 2";
    for (const std::uint32_t index : seen)
      EXPECT_NE(std::count(parts[static_cast<std::size_t>(worker)].begin(), parts[static_cast<std::size_t>(worker)].end(), index), 0);
  }
}

TEST(WorkerBatches, ProgressIsAFractionOfAnEpoch) {
  std::vector<WorkerBatches> shared = made(100, "shared", 2);
  std::vector<WorkerBatches> dataset = made(100, "dataset", 2);
  EXPECT_EQ(shared[0].samples_per_epoch(), 50U);
  EXPECT_EQ(dataset[0].samples_per_epoch(), 50U);
  (void)shared[0].next(10);
  (void)dataset[0].next(10);
  EXPECT_DOUBLE_EQ(shared[0].epoch(), 0.2);
  EXPECT_DOUBLE_EQ(dataset[0].epoch(), 0.2);
}

TEST(WorkerBatches, WhoDoesNotTakePartGetsOnWithTheOthers) {
  for (const std::string specification : {"shared", "dataset"}) {
    std::vector<WorkerBatches> batches = made(50, specification, 2);
    for (int step = 0; step < 7; ++step) {
      EXPECT_FALSE(batches[0].next(4, true).indices.empty());
      EXPECT_TRUE(batches[1].next(4, false).indices.empty());
      EXPECT_EQ(batches[1].progress(), batches[0].progress()) << specification;
    }
  }
  // Samples that are a worker's own wait for it.
  std::vector<WorkerBatches> rested = made(50, "dataset", 2);
  std::vector<WorkerBatches> fresh = made(50, "dataset", 2);
  (void)rested[1].next(4, false);
  EXPECT_EQ(copy(rested[1].next(4).indices), copy(fresh[1].next(4).indices));
}

TEST(WorkerBatches, GoesOnFromItsTwoPositions) {
  for (const std::string specification : {"shared", "none", "dataset", "labels", "dirichlet:0.5"}) {
    for (const int before : {0, 1, 9, 40}) {
      SCOPED_TRACE(testing::Message() << specification << " after " << before << " steps");
      std::vector<WorkerBatches> first = made(100, specification, 3);
      std::vector<WorkerBatches> second = made(100, specification, 3);
      for (std::size_t worker = 0; worker < 3; ++worker) {
        for (int step = 0; step < before; ++step) (void)first[worker].next(4, (step + static_cast<int>(worker)) % 3 != 0);
        second[worker].seek(first[worker].progress(), first[worker].order());
        for (int step = 0; step < 30; ++step) {
          const WorkerBatches::Draw expected = first[worker].next(4);
          const WorkerBatches::Draw draw = second[worker].next(4);
          ASSERT_EQ(copy(draw.indices), copy(expected.indices));
          EXPECT_EQ(draw.share, expected.share);
          EXPECT_EQ(second[worker].progress(), first[worker].progress());
        }
      }
    }
  }
}

}  // namespace
}  // namespace starling::data
