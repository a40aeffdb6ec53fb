// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// fp16, bf16, int8, 1bit and threshold: the formulas, by hand and against plain loops, on every instruction set.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "unit/codec/support.h"

namespace starling::codec {
namespace {

// The nearest value with `digits` binary digits and exponents from `least` on, ties to even: in double, where nothing else is rounded.
float rounded(float value, int digits, int least, double largest) {
  if (value == 0) return value;
  int exponent = 0;
  static_cast<void>(std::frexp(static_cast<double>(value), &exponent));
  const double unit = std::ldexp(1.0, std::max(exponent - digits, least - digits + 1));
  const double result = std::nearbyint(static_cast<double>(value) / unit) * unit;
  return static_cast<float>(std::clamp(result, -largest, largest));
}

float rounded_to_fp16(float value) { return rounded(value, 11, -14, 65504); }
float rounded_to_bf16(float value) { return rounded(value, 8, -126, 3.3895313892515355e38); }

// Calls the test on each instruction set that the machine has; it would choose only the best by itself.
template <class Test>
void on_every_instruction_set(Test test) {
  for (const std::int64_t set : {HWY_SCALAR, HWY_SSE4, HWY_AVX2, HWY_NEON}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & set) == 0 && set != HWY_SCALAR) continue;
    hwy::SetSupportedTargetsForTest(set);
    SCOPED_TRACE(hwy::TargetName(set));
    test();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Numbers of every exponent, and the neighbourhood of those at which roundings change.
Floats telling_floats() {
  RandomStream random(21, 0, "floats");
  Floats values{0.0F,   -0.0F, 1.0F,    -1.0F,          65504.0F, 65519.9F,       65520.0F, 1e6F,
                -1e30F, 6e-8F, 2.9e-8F, 2.98023224e-8F, 6.1e-5F,  6.09755516e-5F, 3.39e38F};
  for (int i = 0; i < 20000; ++i) {
    const float value = std::bit_cast<float>(random.next_u32());
    if (std::isfinite(value)) values.push_back(value);
    // Near the middle between two halves: only the lowest bits vary.
    const float near = std::bit_cast<float>((random.next_u32() & 0xffff0000U) | 0x1000U | (random.next_u32() & 1U));
    if (std::isfinite(near)) values.push_back(near);
    values.push_back(static_cast<float>(std::ldexp(random.normal(), -static_cast<int>(random.below(30)))));
  }
  return values;
}

TEST(Half, RoundsToTheNearestAndKeepsTheRest) {
  const Floats values = telling_floats();
  on_every_instruction_set([&] {
    for (const bool fp16 : {true, false}) {
      const auto codec = make_codec(fp16 ? "fp16" : "bf16", context_of(values.size()));
      const Floats decoded = send(*codec, values);
      const Floats kept = residual_of(*codec, values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float expected = fp16 ? rounded_to_fp16(values[i]) : rounded_to_bf16(values[i]);
        ASSERT_EQ(decoded[i], expected) << values[i];
        ASSERT_EQ(kept[i], values[i] - expected) << values[i];
      }
    }
  });
}

TEST(Half, AddsWhatWasKeptToTheNext) {
  const auto codec = make_codec("bf16", context_of(1));
  // 1 + 1/256 lies in the middle between 1 and 1 + 1/128, and 1 is even.
  EXPECT_EQ(send(*codec, {1.00390625F}), (Floats{1.0F}));
  EXPECT_EQ(residual_of(*codec, 1), (Floats{0.00390625F}));
  EXPECT_EQ(send(*codec, {1.00390625F}), (Floats{1.0078125F}));
  EXPECT_EQ(residual_of(*codec, 1), (Floats{0.0F}));
}

TEST(Half, RefusesInfinityAndNan) {
  for (const char* name : {"fp16", "bf16"}) {
    const auto codec = make_codec(name, context_of(20));
    const unsigned infinity = std::string(name) == "fp16" ? 0x7c00U : 0x7f80U;
    for (const unsigned half : {infinity, infinity | 0x8000U, infinity + 1, 0x7fffU}) {
      for (const std::size_t place : {0U, 17U, 19U}) {
        Bytes bytes;
        codec->encode(Floats(20, 1), bytes);
        bytes[16 + 2 * place] = static_cast<std::byte>(half);
        bytes[17 + 2 * place] = static_cast<std::byte>(half >> 8U);
        Floats decoded(20);
        EXPECT_EQ(codec->decode(bytes, decoded), "the encoded update has a value that is not finite");
      }
    }
  }
}

TEST(Fp32, RefusesInfinityAndNan) {
  const auto codec = make_codec("fp32", context_of(20));
  for (const float value : {INFINITY, -INFINITY, NAN}) {
    for (const std::size_t place : {0U, 17U, 19U}) {
      Bytes bytes;
      codec->encode(Floats(20, 1), bytes);
      put_float(bytes, 16 + 4 * place, value);
      Floats decoded(20);
      EXPECT_NE(codec->decode(bytes, decoded), std::nullopt);
    }
  }
}

TEST(Int8, ScalesEachBlockByItsLargest) {
  // Two blocks, the second of three components.
  Floats update(259, 0.5F);
  update[7] = -127;
  update[256] = 1;
  update[257] = -1;
  update[258] = 0.25F;
  const auto codec = make_codec("int8", context_of(update.size()));
  const Floats decoded = send(*codec, update);
  EXPECT_EQ(decoded[7], -127);
  EXPECT_EQ(decoded[0], 0);  // Half of a scale of 1, and 0 is even.
  EXPECT_EQ(decoded[256], 127 * (1.0F / 127));
  EXPECT_EQ(decoded[257], -127 * (1.0F / 127));
  EXPECT_EQ(decoded[258], 32 * (1.0F / 127));  // 0.25 × 127 = 31.75.
  const Floats kept = residual_of(*codec, update.size());
  EXPECT_EQ(kept[0], 0.5F);
  EXPECT_EQ(kept[258], 0.25F - 32 * (1.0F / 127));
}

TEST(Int8, AgreesWithAPlainLoopOnEveryInstructionSet) {
  const Floats update = random_floats(1000, 22);
  on_every_instruction_set([&] {
    const auto codec = make_codec("int8", context_of(update.size()));
    Floats kept(update.size());
    for (int step = 0; step < 3; ++step) {
      const Floats decoded = send(*codec, update);
      for (std::size_t begin = 0; begin < update.size(); begin += 256) {
        const std::size_t end = std::min(update.size(), begin + 256);
        float largest = 0;
        for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(kept[i] += update[i]));
        for (std::size_t i = begin; i < end; ++i) {
          const float expected = std::nearbyint(kept[i] * (127 / largest)) * (largest / 127);
          ASSERT_EQ(decoded[i], expected) << i;
          kept[i] -= expected;
        }
      }
      EXPECT_EQ(residual_of(*codec, update.size()), kept);
    }
  });
}

TEST(Int8, RefusesScalesThatCouldOverflow) {
  const auto codec = make_codec("int8", context_of(3));
  for (const float scale : {-1.0F, INFINITY, -INFINITY, NAN, 3e38F}) {
    Bytes bytes;
    codec->encode({{1, 2, 3}}, bytes);
    put_float(bytes, 16, scale);
    Floats decoded(3);
    EXPECT_NE(codec->decode(bytes, decoded), std::nullopt) << scale;
  }
}

TEST(OneBit, SendsMeansOfPositivesAndNegatives) {
  const auto codec = make_codec("1bit", context_of(5));
  EXPECT_EQ(send(*codec, {1, 3, -2, 0, -6}), (Floats{4.0F / 3, 4.0F / 3, -4, 4.0F / 3, -4}));
  EXPECT_EQ(residual_of(*codec, 5), (Floats{1 - 4.0F / 3, 3 - 4.0F / 3, 2, -4.0F / 3, -2}));
  Bytes bytes;
  codec->encode(Floats(5), bytes);
  EXPECT_EQ(bytes.size(), 16U + 8 + 1);
}

TEST(OneBit, AgreesWithAPlainLoopOnEveryInstructionSet) {
  const Floats update = random_floats(1300, 23);
  Floats on_first_set;
  on_every_instruction_set([&] {
    const auto codec = make_codec("1bit", context_of(update.size()));
    Floats all;
    std::vector<double> kept(update.size());
    for (int step = 0; step < 3; ++step) {
      const Floats decoded = send(*codec, update);
      all.insert(all.end(), decoded.begin(), decoded.end());
      for (std::size_t begin = 0; begin < update.size(); begin += 512) {
        const std::size_t end = std::min(update.size(), begin + 512);
        double sums[2] = {0, 0};
        double counts[2] = {0, 0};
        for (std::size_t i = begin; i < end; ++i) {
          kept[i] += static_cast<double>(update[i]);
          sums[kept[i] >= 0 ? 1 : 0] += kept[i];
          counts[kept[i] >= 0 ? 1 : 0] += 1;
        }
        for (std::size_t i = begin; i < end; ++i) {
          const int sign = kept[i] >= 0 ? 1 : 0;
          ASSERT_NEAR(static_cast<double>(decoded[i]), sums[sign] / counts[sign], 1e-5) << i;
          kept[i] -= static_cast<double>(decoded[i]);
        }
      }
    }
    // The order of additions is fixed, so all sets agree to the bit.
    if (on_first_set.empty()) on_first_set = all;
    EXPECT_EQ(all, on_first_set);
  });
}

TEST(OneBit, RefusesMeansThatAreNotFinite) {
  const auto codec = make_codec("1bit", context_of(600));
  for (const std::size_t place : {0U, 3U}) {
    Bytes bytes;
    codec->encode(Floats(600, 1), bytes);
    put_float(bytes, 16 + 4 * place, NAN);
    Floats decoded(600);
    EXPECT_EQ(codec->decode(bytes, decoded), "the encoded update has a mean that is not finite");
  }
}

TEST(Threshold, SendsOneStepOfTauAndKeepsTheRest) {
  const auto codec = make_codec("threshold:1", context_of(6));
  // Just τ is not beyond it; far beyond it is still one τ a step.
  EXPECT_EQ(send(*codec, {1, 1.5F, -1.25F, 5, 0, -0.75F}), (Floats{0, 1, -1, 1, 0, 0}));
  EXPECT_EQ(residual_of(*codec, 6), (Floats{1, 0.5F, -0.25F, 4, 0, -0.75F}));
  EXPECT_EQ(send(*codec, {0.5F, 0, 0, 0, 0, -0.5F}), (Floats{1, 0, 0, 1, 0, -1}));
  EXPECT_EQ(residual_of(*codec, 6), (Floats{0.5F, 0.5F, -0.25F, 3, 0, -0.25F}));
}

TEST(Threshold, IsListsWhereFewAreSentAndMapsWhereMany) {
  const auto codec = make_codec("threshold:1", context_of(300));
  Floats update(300);
  update[3] = 2;
  update[127] = -2;
  for (std::size_t i = 128; i < 128 + 33; ++i) update[i] = i % 2 == 0 ? 2.0F : -2.0F;
  Bytes bytes;
  codec->encode(update, bytes);
  Bytes expected = bytes_of({2, 3, 127 + 128, 255});
  for (int i = 0; i < 16; ++i) expected.push_back(static_cast<std::byte>(i < 4 ? 0x55 : i == 4 ? 1 : 0));
  for (int i = 0; i < 16; ++i) expected.push_back(static_cast<std::byte>(i < 4 ? 0xaa : 0));
  expected.push_back(std::byte{0});
  EXPECT_EQ(body_of(bytes), expected);
}

TEST(Threshold, AgreesWithAPlainLoopOnEveryInstructionSet) {
  on_every_instruction_set([&] {
    for (const double tau : {0.01, 0.5, 1.5, 2.5, 4.0}) {  // From almost all to almost none.
      const Floats update = random_floats(1000, 24);
      const auto threshold = static_cast<float>(tau);
      const auto codec = make_codec("threshold:" + std::to_string(tau), context_of(update.size()));
      Floats kept(update.size());
      for (int step = 0; step < 3; ++step) {
        Floats expected(update.size());
        for (std::size_t i = 0; i < update.size(); ++i) {
          kept[i] += update[i];
          if (std::fabs(kept[i]) > threshold) expected[i] = kept[i] > 0 ? threshold : -threshold;
          kept[i] -= expected[i];
        }
        ASSERT_EQ(send(*codec, update), expected) << tau;
        ASSERT_EQ(residual_of(*codec, update.size()), kept) << tau;
      }
    }
  });
}

TEST(Threshold, RefusesPlacesThatAreWrong) {
  const auto codec = make_codec("threshold:1", context_of(10));
  Bytes header;
  codec->encode(Floats(10), header);
  header.resize(16);
  const auto decodes = [&](const std::vector<int>& body) {
    Bytes bytes = header;
    const Bytes rest = bytes_of(body);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    Floats decoded(10);
    return codec->decode(bytes, decoded) == std::nullopt;
  };
  EXPECT_TRUE(decodes({0}));
  EXPECT_TRUE(decodes({2, 0, 9 + 128}));
  EXPECT_FALSE(decodes({1, 10}));    // Beyond the end of the vector.
  EXPECT_FALSE(decodes({2, 5, 5}));  // Twice.
  EXPECT_FALSE(decodes({2, 5, 4}));  // Not ascending.
  EXPECT_FALSE(decodes({2, 5}));     // One is missing.
  EXPECT_FALSE(decodes({1, 5, 0}));  // One byte too many.
  EXPECT_FALSE(decodes({33}));       // No list is that long.
  EXPECT_FALSE(decodes(std::vector<int>(34, 33)));
  std::vector<int> maps(33);
  maps[0] = 255;
  maps[1] = 3;
  EXPECT_TRUE(decodes(maps));
  maps[17] = 2;
  EXPECT_FALSE(decodes(maps));  // Positive and negative at once.
  maps[17] = 0;
  maps[2] = 4;
  EXPECT_FALSE(decodes(maps));  // Component 10.
}

TEST(Threshold, RefusesAnotherThreshold) {
  Bytes bytes;
  make_codec("threshold:2", context_of(3))->encode(Floats(3), bytes);
  Floats decoded(3);
  EXPECT_EQ(make_codec("threshold:1", context_of(3))->decode(bytes, decoded),
            "the update was encoded with the threshold 2, but 1 was expected");
}

// Large vectors are written past the caches, from any address on.
TEST(LargeUpdates, AreTheSameAsSmallOnesAtEveryAlignment) {
  constexpr std::size_t kSize = (std::size_t{4} << 20U) + 77;
  const Floats pattern = random_floats(99991, 25);
  Floats update(kSize);
  for (std::size_t i = 0; i < kSize; ++i) update[i] = pattern[i % pattern.size()];
  for (const char* name : {"fp32", "fp16", "bf16", "int8", "1bit", "threshold:1", "threshold:3"}) {
    // The last 512 × 2000 + 77 floats are encoded alike whether or not there are others before them.
    constexpr std::size_t kTail = 512 * 2000 + 77;
    const Floats tail(update.end() - kTail, update.end());
    const Floats expected = send(*make_codec(name, context_of(kTail)), tail);
    const auto codec = make_codec(name, context_of(kSize));
    Bytes bytes;
    codec->encode(update, bytes);
    for (const std::size_t offset : {0U, 1U, 3U}) {
      Floats decoded(kSize + offset + 1, 42);
      Bytes moved(bytes.size() + offset);
      std::copy(bytes.begin(), bytes.end(), moved.begin() + static_cast<std::ptrdiff_t>(offset));
      ASSERT_EQ(codec->decode(std::span(moved).subspan(offset), std::span(decoded).subspan(offset, kSize)), std::nullopt);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), decoded.end() - 1 - static_cast<std::ptrdiff_t>(kTail))) << name;
      EXPECT_EQ(decoded.back(), 42);
    }
  }
}

}  // namespace
}  // namespace starling::codec
