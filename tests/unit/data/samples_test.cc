// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "starling/base/error.h"
#include "starling/data/batches.h"

namespace starling::data {
namespace {

// Two channels of 2 x 3; channel 1 never changes.
Samples small_samples(bool as_floats) {
  Samples samples;
  samples.shape = {.channels = 2, .height = 2, .width = 3};
  samples.count = 4;
  for (int i = 0; i < 48; ++i) {
    const int value = i / 6 % 2 == 1 ? 9 : (i * 37) % 256;
    if (as_floats) {
      samples.floats.push_back(static_cast<float>(value));
    } else {
      samples.bytes.push_back(static_cast<std::uint8_t>(value));
    }
  }
  samples.standardisation = standardise(samples);
  return samples;
}

std::vector<float> inputs_of(const Samples& samples, const std::vector<std::uint32_t>& indices) {
  std::vector<float> inputs(indices.size() * samples.shape.size());
  copy_inputs({.samples = &samples, .indices = indices}, inputs);
  return inputs;
}

TEST(Samples, StandardisedChannelsHaveMeanZeroAndDeviationOne) {
  for (const bool as_floats : {false, true}) {
    const std::vector<float> inputs = inputs_of(small_samples(as_floats), {0, 1, 2, 3});
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i / 6 % 2 == 1) {
        EXPECT_EQ(inputs[i], 0) << "a channel that never changes";
        continue;
      }
      sum += static_cast<double>(inputs[i]);
      squares += static_cast<double>(inputs[i]) * static_cast<double>(inputs[i]);
    }
    EXPECT_NEAR(sum / 24, 0, 1e-6);
    EXPECT_NEAR(squares / 24, 1, 1e-6);
  }
}

TEST(Samples, BytesAndFloatsOfTheSameValuesGiveTheSameInputs) {
  EXPECT_EQ(inputs_of(small_samples(false), {3, 0}), inputs_of(small_samples(true), {3, 0}));
}

TEST(Samples, InputsAreThoseOfTheIndicesInTheirOrder) {
  const Samples samples = small_samples(false);
  const std::vector<float> one = inputs_of(samples, {2});
  const std::vector<float> three = inputs_of(samples, {0, 2, 2});
  EXPECT_TRUE(std::equal(one.begin(), one.end(), three.begin() + 12));
  EXPECT_TRUE(std::equal(one.begin(), one.end(), three.begin() + 24));
  EXPECT_FALSE(std::equal(one.begin(), one.end(), three.begin()));
  EXPECT_FLOAT_EQ(one[0], static_cast<float>((24 * 37) % 256) * samples.standardisation[0].scale + samples.standardisation[0].shift);
}

TEST(Samples, AnIndexOrABufferOfTheWrongSizeIsABrokenInvariant) {
  const Samples samples = small_samples(false);
  EXPECT_THROW(inputs_of(samples, {4}), BrokenInvariant);
  std::vector<float> inputs(11);
  const std::vector<std::uint32_t> indices{0};
  EXPECT_THROW(copy_inputs({.samples = &samples, .indices = indices}, inputs), BrokenInvariant);
}

std::vector<std::uint32_t> epoch_of(BatchOrder& order, std::size_t size) {
  std::vector<std::uint32_t> seen;
  const std::uint64_t epoch = order.epoch();
  while (order.epoch() == epoch) {
    const auto batch = order.next(size);
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  return seen;
}

std::vector<std::uint32_t> every_third(std::uint32_t count) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < count; ++i) indices.push_back(3 * i);
  return indices;
}

TEST(BatchOrder, AnEpochHasEverySampleOnceInAnOrderOfItsOwn) {
  BatchOrder order(every_third(103), 1, 0);
  std::set<std::vector<std::uint32_t>> orders;
  for (int epoch = 0; epoch < 5; ++epoch) {
    std::vector<std::uint32_t> seen = epoch_of(order, 10);
    orders.insert(seen);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, every_third(103));
  }
  EXPECT_EQ(orders.size(), 5U);
  EXPECT_EQ(order.number(), 55U);
  EXPECT_EQ(order.epoch(), 5U);
}

TEST(BatchOrder, TheOrderDependsOnSeedRankAndEpochOnly) {
  BatchOrder a(every_third(50), 7, 2);
  BatchOrder b(every_third(50), 7, 2);
  EXPECT_EQ(epoch_of(a, 8), epoch_of(b, 50));
  EXPECT_EQ(epoch_of(a, 8), epoch_of(b, 3));
  BatchOrder other_seed(every_third(50), 8, 2);
  BatchOrder other_rank(every_third(50), 7, 3);
  BatchOrder same(every_third(50), 7, 2);
  const std::vector<std::uint32_t> first = epoch_of(same, 50);
  EXPECT_NE(epoch_of(other_seed, 50), first);
  EXPECT_NE(epoch_of(other_rank, 50), first);
}

TEST(BatchOrder, SeekReproducesEveryPosition) {
  BatchOrder order(every_third(23), 5, 1);
  std::vector<BatchOrder::Position> positions;
  std::vector<std::vector<std::uint32_t>> batches;
  for (int i = 0; i < 20; ++i) {
    positions.push_back(order.position());
    const auto batch = order.next(5);
    batches.emplace_back(batch.begin(), batch.end());
  }
  BatchOrder other(every_third(23), 5, 1);
  for (std::size_t i = positions.size(); i-- > 0;) {
    other.seek(positions[i]);
    EXPECT_EQ(other.position(), positions[i]);
    const auto batch = other.next(5);
    EXPECT_EQ(std::vector<std::uint32_t>(batch.begin(), batch.end()), batches[i]);
  }
  EXPECT_EQ(batches[4].size(), 3U) << "the rest of an epoch";
  EXPECT_THROW(other.seek({.epoch = 0, .sample = 23, .number = 0}), BrokenInvariant);
}

TEST(BatchOrder, NothingToGiveOutIsABrokenInvariant) {
  EXPECT_THROW(BatchOrder({}, 1, 0), BrokenInvariant);
  BatchOrder order({1}, 1, 0);
  EXPECT_THROW(order.next(0), BrokenInvariant);
}

}  // namespace
}  // namespace starling::data
