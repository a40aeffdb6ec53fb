// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "unit/data/made_files.h"

namespace starling::data {
namespace {

using Parts = std::vector<std::vector<std::uint32_t>>;

// The label of sample i is i × 7 mod classes, so that classes are interleaved.
Samples labelled(std::size_t count, int classes) {
  Samples samples;
  samples.count = count;
  samples.classes = classes;
  for (std::size_t i = 0; i < count; ++i) samples.labels.push_back(static_cast<std::int32_t>(i * 7 % static_cast<std::size_t>(classes)));
  return samples;
}

std::vector<std::uint32_t> joined(const Parts& parts) {
  std::vector<std::uint32_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::uint32_t> first_numbers(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

std::set<std::int32_t> labels_in(const Samples& samples, const std::vector<std::uint32_t>& part) {
  std::set<std::int32_t> labels;
  for (const std::uint32_t i : part) labels.insert(samples.labels[i]);
  return labels;
}

// The largest share that one class has of a worker's samples, averaged over workers.
double skew(const Samples& samples, const Parts& parts) {
  double sum = 0;
  for (const auto& part : parts) {
    std::vector<double> counts(static_cast<std::size_t>(samples.classes));
    for (const std::uint32_t i : part) ++counts[static_cast<std::size_t>(samples.labels[i])];
    sum += *std::max_element(counts.begin(), counts.end()) / static_cast<double>(part.size());
  }
  return sum / static_cast<double>(parts.size());
}

std::string error_of(const Samples& samples, const std::string& specification, int workers) {
  return message_of<UserError>([&] { partition(samples, specification, workers, 1); });
}

TEST(Partition, NoneGivesEveryWorkerAll) {
  for (const auto& part : partition(labelled(10, 2), "none", 3, 1)) EXPECT_EQ(part, first_numbers(10));
}

TEST(Partition, DatasetAndDirichletAreDisjointAndComplete) {
  for (const std::string specification : {"dataset", "dirichlet:100", "dirichlet:1", "dirichlet:0.3"}) {
    for (const int workers : {1, 2, 3, 7}) {
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(specification + ", workers " + std::to_string(workers) + ", seed " + std::to_string(seed));
        const Parts parts = partition(labelled(1003, 10), specification, workers, seed);
        ASSERT_EQ(parts.size(), static_cast<std::size_t>(workers));
        EXPECT_EQ(joined(parts), first_numbers(1003));
        for (const auto& part : parts) {
          EXPECT_FALSE(part.empty());
          EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
        }
      }
    }
  }
}

TEST(Partition, ChunksDifferByAtMostOneSample) {
  const Parts parts = partition(labelled(1003, 10), "dataset", 7, 1);
  for (const auto& part : parts) EXPECT_TRUE(part.size() == 143 || part.size() == 144) << part.size();
}

TEST(Partition, LabelsAreDealtInTurnAndWorkersHaveEquallyMany) {
  const Samples samples = labelled(1003, 10);
  for (const int workers : {1, 2, 3, 4, 10}) {
    const Parts parts = partition(samples, "labels", workers, 3);
    std::set<std::int32_t> all;
    std::size_t labels = 0;
    for (const auto& part : parts) {
      EXPECT_EQ(part.size(), parts[0].size());
      const std::set<std::int32_t> mine = labels_in(samples, part);
      EXPECT_LE(mine.size(), 10U / static_cast<std::size_t>(workers) + 1);
      labels += mine.size();
      all.insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(all.size(), 10U) << "every label has a worker";
    EXPECT_EQ(labels, 10U) << "and only one";
    const std::vector<std::uint32_t> together = joined(parts);
    EXPECT_EQ(std::set<std::uint32_t>(together.begin(), together.end()).size(), together.size());
    EXPECT_GE(parts[0].size(), 100U * (10U / static_cast<std::size_t>(workers)));
  }
}

TEST(Partition, TheSameSeedGivesTheSameAndAnotherSeedAnother) {
  const Samples samples = labelled(1003, 10);
  for (const std::string specification : {"dataset", "labels", "dirichlet:1"}) {
    EXPECT_EQ(partition(samples, specification, 4, 9), partition(samples, specification, 4, 9));
    EXPECT_NE(partition(samples, specification, 4, 9), partition(samples, specification, 4, 10)) << specification;
  }
}

TEST(Partition, ALargeAlphaIsNearlyUniformAndASmallOneSkewed) {
  const Samples samples = labelled(20000, 10);
  const double uniform = skew(samples, partition(samples, "dirichlet:100000", 5, 1));
  const double middle = skew(samples, partition(samples, "dirichlet:1", 5, 1));
  const double skewed = skew(samples, partition(samples, "dirichlet:0.02", 5, 2));
  EXPECT_LT(uniform, 0.11);
  EXPECT_GT(middle, uniform + 0.05);
  EXPECT_GT(skewed, middle + 0.05);
  for (const auto& part : partition(samples, "dirichlet:100000", 5, 1)) EXPECT_NEAR(static_cast<double>(part.size()), 4000, 80);
}

// With alpha 1 a share of one worker among five is Beta(1, 4): mean 0.2, variance 0.2 × 0.8 / 6.
TEST(Partition, SharesHaveTheMomentsOfTheDirichletDistribution) {
  const Samples samples = labelled(200000, 200);
  for (const double alpha : {0.2, 1.0, 5.0}) {
    const Parts parts = partition(samples, "dirichlet:" + std::to_string(alpha), 5, 4);
    std::vector<double> counts(200);
    for (const std::uint32_t i : parts[0]) ++counts[static_cast<std::size_t>(samples.labels[i])];
    double sum = 0;
    double squares = 0;
    for (const double count : counts) {
      sum += count / 1000;
      squares += count / 1000 * count / 1000;
    }
    const double mean = sum / 200;
    const double variance = 0.16 / (5 * alpha + 1);
    EXPECT_NEAR(mean, 0.2, 4 * std::sqrt(variance / 200)) << alpha;
    EXPECT_NEAR(squares / 200 - mean * mean, variance, 0.4 * variance) << alpha;
  }
}

TEST(Partition, WhatCannotBeIsSaid) {
  const Samples samples = labelled(100, 10);
  EXPECT_TRUE(has(error_of(samples, "labels", 11), "10 classes are not enough for 11 workers"));
  EXPECT_TRUE(has(error_of(samples, "dataset", 101), "100 samples are not enough for 101 workers"));
  EXPECT_TRUE(has(error_of(samples, "dirichlet:0.001", 50), "without samples: use a larger alpha"));
  EXPECT_TRUE(has(error_of(samples, "datset", 2), "Did you mean 'dataset'?"));
  for (const std::string text :
       {"dirichlet", "dirichlet:", "dirichlet:x", "dirichlet:0", "dirichlet:-1", "dirichlet:nan", "dirichlet:1x"}) {
    EXPECT_TRUE(has(error_of(samples, text, 2), "alpha is a number")) << text;
  }
  Samples numbers;
  numbers.count = 10;
  numbers.outputs = 1;
  EXPECT_TRUE(has(error_of(numbers, "labels", 2), "have no labels"));
  EXPECT_TRUE(has(error_of(numbers, "dirichlet:1", 2), "have no labels"));
  EXPECT_EQ(partition(numbers, "dataset", 2, 1).size(), 2U);
  Samples gap = labelled(100, 10);
  gap.classes = 11;
  EXPECT_TRUE(has(error_of(gap, "labels", 11), "some label has no samples"));
}

}  // namespace
}  // namespace starling::data
