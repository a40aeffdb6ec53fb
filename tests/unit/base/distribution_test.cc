// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/distribution.h"

#include <gtest/gtest.h>

#include <cmath>

#include "starling/base/error.h"

namespace starling {
namespace {

using namespace std::chrono_literals;

void expect_moments(const Distribution& distribution, double mean, double deviation) {
  RandomStream stream(1, 0, "distribution");
  constexpr int kCount = 100000;
  double sum = 0;
  double square = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = distribution.sample(stream);
    ASSERT_GE(x, 0);
    sum += x;
    square += x * x;
  }
  const double measured = sum / kCount;
  EXPECT_NEAR(measured, mean, mean * 0.02);
  EXPECT_NEAR(std::sqrt(std::max(0.0, square / kCount - measured * measured)), deviation, deviation * 0.05 + 1e-9);
}

TEST(Distribution, HasTheMomentsItNames) {
  expect_moments(Distribution::constant(30ms), 0.030, 0);
  expect_moments(Distribution::gauss(30ms, 5ms), 0.030, 0.005);
  expect_moments(Distribution::lognormal(30ms, 15ms), 0.030, 0.015);
  expect_moments(Distribution::exponential(5ms), 0.005, 0.005);
}

TEST(Distribution, AGaussianIsClippedAtZero) {
  RandomStream stream(1, 0, "clip");
  const Distribution wide = Distribution::gauss(1ms, 10ms);
  int zeros = 0;
  for (int i = 0; i < 1000; ++i) zeros += wide.sample(stream) == 0 ? 1 : 0;
  EXPECT_NEAR(zeros, 460, 60);
}

TEST(Distribution, AConstantDrawsNothing) {
  RandomStream stream(1, 0, "constant");
  EXPECT_EQ(Distribution::constant(30ms).sample(stream), 0.03);
  EXPECT_EQ(stream.position(), 0U);
}

TEST(Distribution, ReadsAndWritesItsText) {
  for (const char* text : {"0.03s", "gauss:0.03s:0.005s", "lognormal:0.03s:0.005s", "exponential:0.005s"}) {
    EXPECT_EQ(Distribution::parse(text, "delay").text(), text);
  }
  EXPECT_EQ(Distribution::parse("gauss:30ms:5ms", "delay").text(), "gauss:0.03s:0.005s");
}

TEST(Distribution, RejectsOthersWithTheValidForms) {
  for (const char* text : {"", "30", "gauss:30ms", "gauss:30ms:5ms:1ms", "normal:30ms:5ms", "lognormal:0:5ms", "exponential:", "-3ms"}) {
    try {
      Distribution::parse(text, "the delay");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("the delay is '"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace starling
