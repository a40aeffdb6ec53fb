// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/data/dataset.h"
#include "unit/data/made_files.h"

namespace starling::data {
namespace {

double dot(const float* x, const std::vector<float>& w) {
  double sum = 0;
  for (std::size_t j = 0; j < w.size(); ++j) sum += static_cast<double>(x[j]) * static_cast<double>(w[j]);
  return sum;
}

// The gradient of the mean over all samples of a loss whose derivative by the model's output x·w is `derivative(output, sample)`.
template <class Derivative>
std::vector<double> gradient_at(const Samples& samples, const std::vector<float>& w, const Derivative& derivative) {
  std::vector<double> gradient(w.size());
  for (std::size_t i = 0; i < samples.count; ++i) {
    const float* x = &samples.floats[i * w.size()];
    const double slope = derivative(dot(x, w), i) / static_cast<double>(samples.count);
    for (std::size_t j = 0; j < w.size(); ++j) gradient[j] += slope * static_cast<double>(x[j]);
  }
  return gradient;
}

void expect_zero(const std::vector<double>& gradient) {
  for (const double entry : gradient) EXPECT_NEAR(entry, 0, 2e-7);
}

void expect_not_zero(const std::vector<double>& gradient) {
  double largest = 0;
  for (const double entry : gradient) largest = std::max(largest, std::abs(entry));
  EXPECT_GT(largest, 1e-4);
}

std::vector<float> moved(std::vector<float> w) {
  w[0] += 0.01F;
  return w;
}

class Quadratic : public testing::TestWithParam<QuadraticOptions> {};

TEST_P(Quadratic, TheHessianIsDiagonalWithTheEigenvaluesAskedFor) {
  const QuadraticOptions& options = GetParam();
  const Dataset data = make_quadratic(options);
  const std::size_t dimension = options.dimension;
  for (std::size_t a = 0; a < dimension; ++a) {
    const double exponent = dimension == 1 ? 0 : static_cast<double>(a) / static_cast<double>(dimension - 1);
    const double eigenvalue = std::pow(options.condition, -exponent);
    const double scale = std::abs(static_cast<double>(data.train.floats[a]));
    EXPECT_NEAR(2 * scale * scale, eigenvalue, 2e-7 * eigenvalue) << "a float's worth";
    for (std::size_t b = 0; b <= a; ++b) {
      // All entries of a column are alike but for the sign, so that whole numbers tell the inner product of two columns exactly.
      int signs = 0;
      for (std::size_t i = 0; i < data.train.count; ++i) {
        const float x = data.train.floats[i * dimension + a];
        const float y = data.train.floats[i * dimension + b];
        ASSERT_EQ(std::abs(x), std::abs(data.train.floats[a]));
        signs += (x > 0) == (y > 0) ? 1 : -1;
      }
      EXPECT_EQ(signs, a == b ? static_cast<int>(data.train.count) : 0) << a << ", " << b;
    }
  }
}

TEST_P(Quadratic, TheGradientIsZeroAtTheKnownAnswerAndNotBesideIt) {
  const Dataset data = make_quadratic(GetParam());
  for (const Samples* samples : {&data.train, &data.test}) {
    const auto derivative = [&](double output, std::size_t i) { return 2 * (output - static_cast<double>(samples->targets[i])); };
    expect_zero(gradient_at(*samples, data.known_answer, derivative));
    expect_not_zero(gradient_at(*samples, moved(data.known_answer), derivative));
  }
}

TEST_P(Quadratic, TheLossAtTheKnownAnswerIsTheNoise) {
  const QuadraticOptions& options = GetParam();
  const Dataset data = make_quadratic(options);
  double loss = 0;
  for (std::size_t i = 0; i < data.train.count; ++i) {
    const double error = dot(&data.train.floats[i * options.dimension], data.known_answer) - static_cast<double>(data.train.targets[i]);
    loss += error * error / static_cast<double>(data.train.count);
  }
  EXPECT_NEAR(std::sqrt(loss), options.noise, 0.2 * options.noise + 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, Quadratic,
                         testing::Values(QuadraticOptions{}, QuadraticOptions{.dimension = 1, .condition = 1, .samples = 128},
                                         QuadraticOptions{.dimension = 20, .condition = 1000, .noise = 0, .samples = 640, .seed = 7},
                                         QuadraticOptions{.dimension = 33, .condition = 1e6, .noise = 1, .samples = 512, .seed = 3}));

TEST(Logistic, TheGradientIsZeroAtTheKnownAnswerAndNotBesideIt) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Dataset data = make_logistic({.dimension = 12, .samples = 800, .seed = seed});
    for (const Samples* samples : {&data.train, &data.test}) {
      const auto derivative = [&](double output, std::size_t i) { return 1 / (1 + std::exp(-output)) - samples->labels[i]; };
      expect_zero(gradient_at(*samples, data.known_answer, derivative));
      expect_not_zero(gradient_at(*samples, moved(data.known_answer), derivative));
      double bias = 0;
      for (std::size_t i = 0; i < samples->count; ++i) bias += derivative(dot(&samples->floats[i * 12], data.known_answer), i);
      EXPECT_NEAR(bias / static_cast<double>(samples->count), 0, 2e-7) << "a bias of zero is best, too";
    }
  }
}

TEST(Blobs, SamplesLieAroundTheCentreOfTheirClass) {
  const BlobsOptions options{.samples = 5000, .classes = 5, .dimension = 3, .spread = 0.5, .seed = 4};
  const Dataset data = make_blobs(options);
  ASSERT_EQ(data.known_answer.size(), 15U);
  ASSERT_EQ(data.class_names.size(), 5U);
  std::vector<double> mean(15);
  double squares = 0;
  for (std::size_t i = 0; i < data.train.count; ++i) {
    const auto label = static_cast<std::size_t>(data.train.labels[i]);
    for (std::size_t j = 0; j < 3; ++j) {
      const double difference = static_cast<double>(data.train.floats[i * 3 + j]) - static_cast<double>(data.known_answer[label * 3 + j]);
      mean[label * 3 + j] += difference / 1000;
      squares += difference * difference / 15000;
    }
  }
  for (const double value : mean) EXPECT_NEAR(value, 0, 4 * 0.5 / std::sqrt(1000));
  EXPECT_NEAR(std::sqrt(squares), 0.5, 0.02);
}

TEST(Synthetic, SetsDependOnTheirOptionsAlone) {
  for (const std::string name : {"blobs", "quadratic", "logistic"}) {
    const Dataset a = load_dataset(name + ":seed=5", "");
    const Dataset b = load_dataset(name + ":seed=5", "");
    const Dataset c = load_dataset(name + ":seed=6", "");
    EXPECT_EQ(a.train.floats, b.train.floats);
    EXPECT_EQ(a.train.targets, b.train.targets);
    EXPECT_EQ(a.known_answer, b.known_answer);
    EXPECT_NE(a.known_answer, c.known_answer) << name;
    EXPECT_TRUE(a.train.floats != a.test.floats || a.train.targets != a.test.targets) << name;
    EXPECT_EQ(a.train.standardisation, std::vector<Standardisation>{Standardisation{}});
    EXPECT_EQ(a.test.standardisation, a.train.standardisation);
    EXPECT_EQ(a.name, name + ":seed=5");
  }
}

// Fixed bits: a change here changes every result that was published with these sets.
TEST(Synthetic, TheFirstNumbersAreTheSameOnEveryMachine) {
  const Dataset blobs = load_dataset("blobs", "");
  const Dataset quadratic = load_dataset("quadratic", "");
  const Dataset logistic = load_dataset("logistic", "");
  EXPECT_EQ(std::vector<float>(blobs.train.floats.begin(), blobs.train.floats.begin() + 2),
            (std::vector<float>{0x1.380484p-1F, 0x1.685b72p-2F}));
  EXPECT_EQ(quadratic.train.targets[0], -0x1.84fc6p-5F);
  EXPECT_EQ(logistic.train.floats[0], -0x1.228c38p-2F);
}

TEST(Synthetic, WrongOptionsAreSaid) {
  const auto error = [](const std::string& text) { return message_of<UserError>([&] { load_dataset(text, ""); }); };
  EXPECT_TRUE(has(error("blobs:clases=3"), "it has samples, classes, dimension, spread, seed. Did you mean 'classes'?"));
  EXPECT_TRUE(
      has(error("blobs:classes=1"), "'classes' of the data set 'blobs:classes=1' is '1', but it must be a whole number from 2 to 1000"));
  EXPECT_TRUE(has(error("blobs:classes=3,classes=4"), "'classes' is given twice"));
  EXPECT_TRUE(has(error("blobs:"), "is no option"));
  EXPECT_TRUE(has(error("blobs:classes"), "'classes' is no option"));
  EXPECT_TRUE(has(error("blobs:=3"), "'=3' is no option"));
  EXPECT_TRUE(has(error("blobs:spread=-1"), "a number from 0 to"));
  EXPECT_TRUE(has(error("blobs:spread=nan"), "a number from 0 to"));
  EXPECT_TRUE(has(error("blobs:seed=1x"), "a whole number"));
  EXPECT_TRUE(has(error("blobs:seed=-1"), "a whole number"));
  EXPECT_TRUE(has(error("blobs:samples=100000000,dimension=100000"), "at most 268435456 numbers are made"));
  EXPECT_TRUE(has(error("quadratic:dimension=20,samples=1000"), "must be a multiple of 64, as in samples=1024"));
  EXPECT_TRUE(has(error("quadratic:condition=0.5"), "a number from 1 to"));
  EXPECT_TRUE(has(error("logistic:samples=1001"), "a multiple of 4"));
  EXPECT_TRUE(has(error("logistic:samples=36"), "at least 40"));
  EXPECT_TRUE(has(error("blob"), "it is one of fashion-mnist, mnist, cifar10, blobs, quadratic, logistic. Did you mean 'blobs'?"));
}

}  // namespace
}  // namespace starling::data
