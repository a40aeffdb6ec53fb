// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/optim/optimiser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/optim/two_stage.h"

namespace starling::optim {
namespace {

using params::Layout;
using params::SliceKind;

Layout flat_layout(std::size_t size) {
  Layout layout;
  if (size > 0) layout.add("all", {static_cast<std::int64_t>(size)});
  return layout;
}

std::vector<float> random_values(std::size_t size, std::uint64_t seed, const char* purpose) {
  RandomStream stream(seed, 0, purpose);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(stream.normal());
  return values;
}

// One weight with its state, moved as the header says, in plain float arithmetic.
struct PlainWeight {
  float w = 0;
  float v = 0;
  float s = 0;
};

using PlainRule = std::function<void(PlainWeight&, float g, float lr, int step)>;

void plain_sgd(PlainWeight& x, float g, float lr, int /*step*/) { x.w -= lr * g; }

void plain_momentum(PlainWeight& x, float g, float lr, int /*step*/) {
  x.v = 0.8F * x.v + g;
  x.w -= lr * x.v;
}

void plain_nesterov(PlainWeight& x, float g, float lr, int /*step*/) {
  x.v = 0.8F * x.v + g;
  x.w -= lr * (g + 0.8F * x.v);
}

void plain_adagrad(PlainWeight& x, float g, float lr, int /*step*/) {
  x.s += g * g;
  x.w -= lr * (g / (std::sqrt(x.s) + 1e-10F));
}

void plain_adam(PlainWeight& x, float g, float lr, int step) {
  x.v = 0.9F * x.v + static_cast<float>(1 - 0.9) * g;
  x.s = 0.999F * x.s + static_cast<float>(1 - 0.999) * (g * g);
  double power1 = 1;
  double power2 = 1;
  for (int i = 0; i < step; ++i) {
    power1 *= 0.9;
    power2 *= 0.999;
  }
  const float rate = static_cast<float>(static_cast<double>(lr) / (1 - power1));
  x.w -= rate * (x.v / (std::sqrt(x.s) / static_cast<float>(std::sqrt(1 - power2)) + 1e-8F));
}

struct Case {
  const char* name;
  PlainRule rule;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"sgd", plain_sgd}, {"momentum", plain_momentum}, {"nesterov", plain_nesterov}, {"adagrad", plain_adagrad}, {"adam", plain_adam}};
  return kCases;
}

// Adam's corrections are powers, which the reference multiplies up in another order.
void expect_equal(const std::string& name, float actual, float expected) {
  if (name == "adam") {
    EXPECT_NEAR(actual, expected, 2e-6 * std::max(1.0F, std::abs(expected)));
  } else {
    EXPECT_EQ(actual, expected);
  }
}

TEST(Optimiser, EveryRuleAgreesWithThePlainLoopForEveryRemainder) {
  for (const Case& example : cases()) {
    for (const double decay : {0.0, 0.01}) {
      for (const std::size_t size : {0, 1, 3, 7, 8, 9, 15, 16, 17, 1000}) {
        SCOPED_TRACE(std::string(example.name) + ", " + std::to_string(size) + " weights, decay " + std::to_string(decay));
        const auto optimiser = make_optimiser({.name = example.name, .momentum = 0.8, .weight_decay = decay}, flat_layout(size));
        std::vector<float> weights = random_values(size, 1, "weights");
        std::vector<PlainWeight> expected(size);
        for (std::size_t i = 0; i < size; ++i) expected[i].w = weights[i];
        for (int step = 1; step <= 5; ++step) {
          const std::vector<float> gradient = random_values(size, static_cast<std::uint64_t>(step), "gradient");
          optimiser->step(weights, gradient, 0.25);
          for (std::size_t i = 0; i < size; ++i) {
            const float g = decay > 0 ? gradient[i] + static_cast<float>(decay) * expected[i].w : gradient[i];
            example.rule(expected[i], g, 0.25F, step);
          }
        }
        for (std::size_t i = 0; i < size; ++i) expect_equal(example.name, weights[i], expected[i].w);
        EXPECT_EQ(optimiser->steps(), 5U);
      }
    }
  }
}

// Two steps from w = 1 with g = 0.5, then g = -1 and lr = 0.1, worked out by hand.
TEST(Optimiser, TwoStepsByHand) {
  const auto after_two_steps = [](const OptimiserOptions& options) {
    const auto optimiser = make_optimiser(options, flat_layout(1));
    std::vector<float> weights{1};
    optimiser->step(weights, std::vector<float>{0.5F}, 0.1);
    optimiser->step(weights, std::vector<float>{-1}, 0.1);
    return weights[0];
  };
  EXPECT_FLOAT_EQ(after_two_steps({.name = "sgd"}), 1.05F);
  EXPECT_FLOAT_EQ(after_two_steps({.name = "momentum", .momentum = 0.5}), 1.025F);  // v: 0.5, -0.75
  // w: 1 - 0.1 (0.5 + 0.25) = 0.925; then v = -0.75, w += 0.1 (1 + 0.375).
  EXPECT_FLOAT_EQ(after_two_steps({.name = "nesterov", .momentum = 0.5}), 1.0625F);
  EXPECT_NEAR(after_two_steps({.name = "adagrad"}), 0.9 + 0.1 / std::sqrt(1.25), 1e-6);
  // m: 0.05, -0.055; s: 0.00025, 0.00124975; corrected by 0.19 and 0.001999.
  EXPECT_NEAR(after_two_steps({.name = "adam"}), 0.9 + 0.1 * (0.055 / 0.19) / std::sqrt(0.00124975 / 0.001999), 1e-6);
  EXPECT_FLOAT_EQ(after_two_steps({.name = "sgd", .weight_decay = 2}), 0.75F * 0.8F + 0.1F);
}

TEST(Optimiser, EpsilonIsOutsideTheRoot) {
  for (const char* name : {"adam", "adagrad"}) {
    const auto optimiser = make_optimiser({.name = name, .epsilon = 1}, flat_layout(1));
    std::vector<float> weights{0};
    optimiser->step(weights, std::vector<float>{3}, 1);
    EXPECT_NEAR(weights[0], -3.0 / (3 + 1), 1e-6) << name;
  }
}

TEST(Optimiser, ClippingByNormScalesAsTorchDoes) {
  const auto optimiser = make_optimiser({.name = "sgd", .clip_norm = 1}, flat_layout(2));
  std::vector<float> weights{0, 0};
  optimiser->step(weights, std::vector<float>{3, 4}, 1);
  EXPECT_NEAR(weights[0], -0.6, 1e-6);
  EXPECT_NEAR(weights[1], -0.8, 1e-6);
  weights = {0, 0};
  optimiser->step(weights, std::vector<float>{0.3F, 0.4F}, 1);  // Short enough: not a bit changes.
  EXPECT_EQ(weights, (std::vector<float>{-0.3F, -0.4F}));
}

TEST(Optimiser, ClippingByValueComesFirstAndLeavesTheGradientAlone) {
  const auto optimiser = make_optimiser({.name = "sgd", .clip_norm = 2.5, .clip_value = 4}, flat_layout(3));
  std::vector<float> weights{0, 0, 0};
  std::vector<float> gradient{-30, 4, 0};
  optimiser->step(weights, gradient, 1);
  const double scale = 2.5 / std::sqrt(32);  // Of (-4, 4, 0).
  EXPECT_NEAR(weights[0], 4 * scale, 1e-5);
  EXPECT_NEAR(weights[1], -4 * scale, 1e-5);
  EXPECT_EQ(weights[2], 0);
  EXPECT_EQ(gradient, (std::vector<float>{-30, 4, 0}));
}

TEST(Optimiser, ClippingDoesNotHideWhatIsNotANumber) {
  for (const std::size_t size : {1, 16}) {
    const auto optimiser = make_optimiser({.name = "sgd", .clip_norm = 1, .clip_value = 1}, flat_layout(size));
    std::vector<float> weights(size);
    optimiser->step(weights, std::vector<float>(size, std::numeric_limits<float>::quiet_NaN()), 1);
    for (const float weight : weights) EXPECT_TRUE(std::isnan(weight));
  }
}

double plain_norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// Two layers with weight and bias; each slice has a rate of its own, those of one dimension the global one.
TEST(Optimiser, LarsHasOneRatePerSlice) {
  Layout layout;
  layout.add("dense1.weight", {4, 3});
  layout.add("dense1.bias", {4});
  layout.add("dense2.weight", {2, 4});
  layout.add("dense2.bias", {2});
  layout.add("norm1.mean", {5}, SliceKind::buffer);
  const OptimiserOptions options{.name = "lars", .momentum = 0.9, .trust = 0.02, .weight_decay = 0.1};
  const auto optimiser = make_optimiser(options, layout);
  std::vector<float> weights = random_values(layout.size(), 3, "weights");
  std::vector<double> expected(weights.begin(), weights.end());
  std::vector<double> velocity(layout.parameter_count());
  for (int step = 0; step < 4; ++step) {
    const std::vector<float> gradient = random_values(layout.parameter_count(), static_cast<std::uint64_t>(step), "gradient");
    for (const params::Slice& slice : layout.slices()) {
      if (slice.kind == SliceKind::buffer) continue;
      const double w = plain_norm(std::span(weights).subspan(slice.offset, slice.size));
      const double g = plain_norm(std::span(gradient).subspan(slice.offset, slice.size));
      const double rate = slice.shape.size() == 1 ? 1 : 0.02 * w / (g + 0.1 * w);
      for (std::size_t i = slice.offset; i < slice.offset + slice.size; ++i) {
        velocity[i] = 0.9 * velocity[i] + 0.5 * rate * (static_cast<double>(gradient[i]) + 0.1 * expected[i]);
        expected[i] -= velocity[i];
      }
    }
    optimiser->step(weights, gradient, 0.5);
    for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], expected[i], 1e-5) << i;
  }
}

TEST(Optimiser, LarsTakesTheGlobalRateWhereANormIsZero) {
  Layout layout;
  layout.add("a.weight", {1, 2});
  layout.add("b.weight", {1, 2});
  const auto optimiser = make_optimiser({.name = "lars", .momentum = 0, .weight_decay = 0.5}, layout);
  std::vector<float> weights{0, 0, 2, 4};
  optimiser->step(weights, std::vector<float>{1, -1, 0, 0}, 0.1);
  EXPECT_FLOAT_EQ(weights[0], -0.1F);
  EXPECT_FLOAT_EQ(weights[1], 0.1F);
  EXPECT_FLOAT_EQ(weights[2], 2 - 0.1F * 0.5F * 2);
  EXPECT_FLOAT_EQ(weights[3], 4 - 0.1F * 0.5F * 4);
}

TEST(Optimiser, BuffersAreLeftAlone) {
  Layout layout;
  layout.add("weight", {3, 3});
  layout.add("mean", {4}, SliceKind::buffer);
  for (const std::string& name : optimiser_names()) {
    const auto optimiser = make_optimiser({.name = name, .weight_decay = 0.1}, layout);
    std::vector<float> weights(13, 1);
    optimiser->step(weights, std::vector<float>(9, 1), 0.1);
    for (std::size_t i = 0; i < 9; ++i) EXPECT_NE(weights[i], 1) << name;
    for (std::size_t i = 9; i < 13; ++i) EXPECT_EQ(weights[i], 1) << name;
  }
}

// Saved after five steps and restored into a new optimiser, ten more steps give the same bits as without the interruption.
TEST(Optimiser, RestoredStateContinuesBitForBit) {
  constexpr std::size_t kSize = 37;
  for (const std::string& name : optimiser_names()) {
    SCOPED_TRACE(name);
    const OptimiserOptions options{.name = name, .weight_decay = 0.01, .clip_norm = 3};
    const auto whole = make_optimiser(options, flat_layout(kSize));
    const auto resumed = make_optimiser(options, flat_layout(kSize));
    std::vector<float> weights = random_values(kSize, 1, "weights");
    std::vector<float> restored;
    for (std::uint64_t step = 0; step < 15; ++step) {
      if (step == 5) {
        restored = weights;
        const auto from = whole->state();
        const auto to = resumed->state();
        ASSERT_EQ(from.size(), to.size());
        for (std::size_t i = 0; i < from.size(); ++i) {
          EXPECT_EQ(from[i].name, to[i].name);
          std::copy(from[i].values.begin(), from[i].values.end(), to[i].values.begin());
        }
        resumed->set_steps(whole->steps());
      }
      const std::vector<float> gradient = random_values(kSize, step, "gradient");
      whole->step(weights, gradient, 0.1);
      if (step >= 5) resumed->step(restored, gradient, 0.1);
    }
    EXPECT_EQ(weights, restored);
    EXPECT_EQ(whole->steps(), resumed->steps());
  }
}

TEST(Optimiser, TwoStagesAreSgdAndThenTheOptimiserFromItsBeginning) {
  const OptimiserOptions options{.name = "adam", .clip_value = 0.5};
  OptimiserOptions plain = options;
  plain.name = "sgd";
  const Layout layout = flat_layout(9);
  TwoStage both(options, layout);
  const auto sgd = make_optimiser(plain, layout);
  const auto adam = make_optimiser(options, layout);
  std::vector<float> weights = random_values(9, 1, "weights");
  std::vector<float> expected = weights;
  for (std::uint64_t step = 0; step < 8; ++step) {
    const std::vector<float> gradient = random_values(9, step, "gradient");
    both.set_first_stage(step < 3);
    both.step(weights, gradient, 0.1);
    (step < 3 ? *sgd : *adam).step(expected, gradient, 0.1);
    EXPECT_EQ(weights, expected) << step;
  }
  EXPECT_EQ(both.steps(), 5U);
  EXPECT_EQ(both.state().size(), 2U);
  EXPECT_EQ(both.options(), options);
}

std::string message_of(const OptimiserOptions& options) {
  try {
    make_optimiser(options, flat_layout(1));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Optimiser, UnknownNameGetsAHint) {
  const std::string message = message_of({.name = "adamm"});
  EXPECT_NE(message.find("'adamm'"), std::string::npos) << message;
  EXPECT_NE(message.find("Did you mean 'adam'?"), std::string::npos) << message;
}

TEST(Optimiser, EveryOptionHasItsRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto expect_refused = [](const OptimiserOptions& options, const std::string& name) {
    EXPECT_EQ(message_of(options).rfind(name + " is ", 0), 0U) << name << ": " << message_of(options);
  };
  for (const double wrong : {-0.1, 1.0, nan, infinity}) {
    expect_refused({.momentum = wrong}, "momentum");
    expect_refused({.beta1 = wrong}, "beta1");
    expect_refused({.beta2 = wrong}, "beta2");
  }
  for (const double wrong : {-1e-9, nan, infinity}) {
    expect_refused({.epsilon = wrong}, "epsilon");
    expect_refused({.weight_decay = wrong}, "weight_decay");
    expect_refused({.clip_norm = wrong}, "clip_norm");
    expect_refused({.clip_value = wrong}, "clip_value");
    expect_refused({.trust = wrong}, "trust");
  }
  expect_refused({.trust = 0}, "trust");
  for (const std::string& name : optimiser_names()) EXPECT_EQ(message_of({.name = name}), "");
}

TEST(Optimiser, VectorsOfAnotherModelAreABrokenInvariant) {
  const auto optimiser = make_optimiser({}, flat_layout(4));
  std::vector<float> weights(4);
  EXPECT_THROW(optimiser->step(weights, std::vector<float>(3), 0.1), BrokenInvariant);
  std::vector<float> five(5);
  EXPECT_THROW(optimiser->step(five, std::vector<float>(4), 0.1), BrokenInvariant);
  EXPECT_THROW(optimiser->step(weights, std::vector<float>(4), -0.1), BrokenInvariant);
  EXPECT_THROW(optimiser->step(weights, std::vector<float>(4), std::numeric_limits<double>::quiet_NaN()), BrokenInvariant);
}

}  // namespace
}  // namespace starling::optim
