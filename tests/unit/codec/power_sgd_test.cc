// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "unit/codec/support.h"

namespace starling::codec {
namespace {

CodecContext matrix_and_bias() {
  CodecContext context;
  context.layout.add("weight", {20, 5, 6});
  context.layout.add("bias", {20});
  context.layout.add("small", {2, 2});  // Would not get smaller.
  return context;
}
constexpr std::size_t kSize = 600 + 20 + 4;

double squares(const Floats& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

TEST(PowerSgd, SendsTwoFactorsAndVectorsAsTheyAre) {
  const auto codec = make_codec("powersgd:2", matrix_and_bias());
  EXPECT_EQ(codec->largest_bytes(), 16 + 4 * (2 * (20 + 30) + 20 + 4));
  const Floats update = random_floats(kSize, 40);
  const Floats decoded = send(*codec, update);
  EXPECT_TRUE(std::equal(update.begin() + 600, update.end(), decoded.begin() + 600));
  const Floats kept = residual_of(*codec, kSize);
  for (std::size_t i = 600; i < kSize; ++i) EXPECT_EQ(kept[i], 0);
  for (std::size_t i = 0; i < 600; ++i) EXPECT_EQ(kept[i], update[i] - decoded[i]);
}

TEST(PowerSgd, AMatrixOfThatRankIsSentWhole) {
  // The sum of two outer products; P spans its columns after one multiplication.
  const Floats left = random_floats(40, 41);
  const Floats right = random_floats(60, 42);
  Floats update(kSize);
  for (std::size_t i = 0; i < 20; ++i) {
    for (std::size_t j = 0; j < 30; ++j) update[i * 30 + j] = left[i] * right[j] + left[20 + i] * right[30 + j];
  }
  for (const char* name : {"powersgd:2", "powersgd:5"}) {
    const auto codec = make_codec(name, matrix_and_bias());
    const Floats decoded = send(*codec, update);
    for (std::size_t i = 0; i < kSize; ++i) EXPECT_NEAR(decoded[i], update[i], 1e-5) << name;
  }
}

// One factor from another by hand: the first step of rank 1 with the factor that the state shows.
TEST(PowerSgd, IsOneStepOfPowerIteration) {
  CodecContext context;
  context.layout.add("weight", {3, 4});
  const auto codec = make_codec("powersgd:1", context);
  params::StateList state;
  codec->list_state(state);
  ASSERT_EQ(state.vectors().size(), 2U);
  ASSERT_EQ(state.vectors()[1].name, "factors");
  const std::span<float> factor = state.vectors()[1].values;
  ASSERT_EQ(factor.size(), 4U);
  std::fill(factor.begin(), factor.end(), 1.0F);
  const Floats update{1, 1, 1, 1, 0, 0, 0, 0, 2, 0, 0, 2};
  // P = M (1, 1, 1, 1) = (4, 0, 4), normed (1, 0, 1) / √2; Q = Mᵀ P = (3, 1, 1, 3) / √2; P Qᵀ has the rows (3, 1, 1, 3) / 2, 0, (3, 1, 1,
  // 3) / 2.
  const Floats expected{1.5F, 0.5F, 0.5F, 1.5F, 0, 0, 0, 0, 1.5F, 0.5F, 0.5F, 1.5F};
  const Floats decoded = send(*codec, update);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(decoded[i], expected[i], 1e-6);
  // Kept for the next step, of length 1.
  const float length = std::sqrt(20.0F);
  const Floats kept{3 / length, 1 / length, 1 / length, 3 / length};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(factor[i], kept[i], 1e-6);
}

TEST(PowerSgd, TheWarmStartFindsTheBestApproximation) {
  // Of a fixed matrix with singular values 8, 4, 2, 1 in one plane each: rank 2 misses 2 and 1. Without error feedback, so the residual is
  // cleared after every step.
  CodecContext context;
  context.layout.add("weight", {8, 9});
  const auto codec = make_codec("powersgd:2", context);
  Floats update(72);
  for (std::size_t i = 0; i < 4; ++i) update[i * 9 + i] = static_cast<float>(8 >> i);
  params::StateList state;
  codec->list_state(state);
  Floats decoded;
  for (int step = 0; step < 20; ++step) {
    std::fill(state.vectors()[0].values.begin(), state.vectors()[0].values.end(), 0.0F);
    decoded = send(*codec, update);
  }
  EXPECT_NEAR(squares(residual_of(*codec, 72)), 4 + 1, 1e-3);
  EXPECT_NEAR(decoded[0], 8, 1e-3);
  EXPECT_NEAR(decoded[10], 4, 1e-3);
}

TEST(PowerSgd, ZeroUpdatesDoNotLoseTheFactors) {
  const auto codec = make_codec("powersgd:2", matrix_and_bias());
  for (int step = 0; step < 3; ++step) EXPECT_EQ(send(*codec, Floats(kSize)), Floats(kSize));
  const Floats update = random_floats(kSize, 43);
  const Floats decoded = send(*codec, update);
  EXPECT_GT(squares(Floats(decoded.begin(), decoded.begin() + 600)), 0.02 * squares(Floats(update.begin(), update.begin() + 600)));
}

TEST(PowerSgd, RefusesFactorsThatGiveInfinity) {
  const auto codec = make_codec("powersgd:2", matrix_and_bias());
  Bytes bytes;
  codec->encode(random_floats(kSize, 44), bytes);
  Floats decoded(kSize);
  put_float(bytes, 16, 3e38F);
  for (std::size_t i = 0; i < 60; ++i) put_float(bytes, 16 + 4 * (40 + i), 3e38F);
  EXPECT_NE(codec->decode(bytes, decoded), std::nullopt);
}

}  // namespace
}  // namespace starling::codec
