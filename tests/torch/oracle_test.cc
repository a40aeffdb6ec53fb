// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// LibTorch as the oracle of the native engine: the same weights, the same batch, the same gradient.
#include <gtest/gtest.h>

#include "starling/compute/native/native_replica.h"
#include "starling/compute/torch/torch_replica.h"
#include "unit/compute/random_networks.h"

namespace starling::compute {
namespace {

// Both replicas on one batch: loss, gradient of every slice, buffers, evaluation.
void expect_agreement(const std::string& model, const data::Samples& samples, std::uint64_t seed) {
  const Problem problem = Problem::of(samples);
  const std::unique_ptr<Replica> native =
      native::make_native_replica(parse_network(model, problem), seed, 0, {.direct_dense_weights = seed % 3 == 0 ? 500U : 2'000'000U});
  const std::unique_ptr<Replica> torch = make_torch_replica(model, problem, seed, 0);
  ASSERT_EQ(params::difference(torch->layout(), native->layout()), "");
  ASSERT_TRUE(std::equal(native->weights().begin(), native->weights().end(), torch->weights().begin()));
  EXPECT_EQ(native->operations_per_sample(), torch->operations_per_sample());
  const std::vector<std::uint32_t> indices = all_indices(samples.count);
  const data::Batch batch{.samples = &samples, .indices = indices, .number = 0};
  const double loss = torch->compute_gradient(batch);
  EXPECT_NEAR(native->compute_gradient(batch), loss, 1e-5 * (1 + std::abs(loss)));
  double whole = 0;
  for (const float g : torch->gradient()) whole += static_cast<double>(g) * static_cast<double>(g);
  for (const params::Slice& slice : native->layout().slices()) {
    const bool buffer = slice.kind == params::SliceKind::buffer;
    const std::span<float> ours = params::Layout::part(buffer ? native->weights() : native->gradient(), slice);
    const std::span<float> theirs = params::Layout::part(buffer ? torch->weights() : torch->gradient(), slice);
    double norm = 0;
    double difference = 0;
    for (std::size_t i = 0; i < slice.size; ++i) {
      norm += static_cast<double>(theirs[i]) * static_cast<double>(theirs[i]);
      difference += static_cast<double>(ours[i] - theirs[i]) * static_cast<double>(ours[i] - theirs[i]);
    }
    // A gradient that is nothing but rounding, as that of a bias before batch norm, is measured by the whole.
    EXPECT_LE(std::sqrt(difference), 1e-4 * std::sqrt(norm) + 1e-6 * std::sqrt(whole)) << slice.name;
  }
  const Evaluation ours = native->evaluate(batch, {});
  const Evaluation theirs = torch->evaluate(batch, {});
  EXPECT_EQ(ours.correct, theirs.correct);
  EXPECT_NEAR(ours.loss_sum, theirs.loss_sum, 1e-4 * (1 + std::abs(theirs.loss_sum)));
}

TEST(Oracle, NamedModelsAgree) {
  RandomStream random(1, 0, "oracle");
  const data::Samples images = random_samples(random, {1, 28, 28}, 33, 10, true);
  for (const char* model : {"lenet5", "softmax", "mlp:784-1000-1000-10"}) {
    SCOPED_TRACE(model);
    expect_agreement(model, images, 1);
  }
  expect_agreement("cifar10-full", random_samples(random, {3, 32, 32}, 5, 10, true), 1);
  expect_agreement("quadratic", random_samples(random, {9, 1, 1}, 40, 1, false), 1);
}

TEST(Oracle, EveryLayerAgreesOnRandomShapes) {
  for (const char* layer : {"dense 7",
                            "dense 300",
                            "conv 5 3x3",
                            "conv 4 5x5 pad 2",
                            "conv 7 2x4 stride 2 pad 1 no bias",
                            "conv 3 1x1 stride 3",
                            "conv 2 6x7 pad 3",
                            "maxpool 2",
                            "maxpool 3 stride 2",
                            "maxpool 3 stride 2 ceil",
                            "maxpool 2 stride 3",
                            "avgpool 2",
                            "avgpool 3 stride 2 ceil",
                            "avgpool 3 stride 1",
                            "relu",
                            "tanh",
                            "sigmoid",
                            "batchnorm",
                            "batchnorm batch",
                            "dropout 0"}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      RandomStream random(seed, 0, layer);
      const data::Shape shape{between(random, 1, 5), between(random, 7, 19), between(random, 7, 19)};
      const int classes = between(random, 2, 6);
      const data::Samples samples = random_samples(random, shape, static_cast<std::size_t>(between(random, 2, 40)), classes, true);
      // Weights before and behind, so that every gradient passes through the layer.
      const std::string text = fmt::format("conv 3 3x3 pad 1, {}, dense {}{}", layer, classes, seed % 2 == 0 ? ", mse" : "");
      SCOPED_TRACE(fmt::format("seed {}: {} on {}x{}x{}, batch {}", seed, text, shape.channels, shape.height, shape.width, samples.count));
      expect_agreement(text, samples, seed);
    }
  }
}

TEST(Oracle, RandomNetworksAgree) {
  for (std::uint64_t seed = 100; seed < 160; ++seed) {
    RandomStream random(seed, 0, "network");
    const data::Shape shape{between(random, 1, 3), between(random, 1, 12), between(random, 1, 12)};
    const bool images = between(random, 0, 3) > 0;
    const std::size_t count = static_cast<std::size_t>(between(random, 2, 40));
    const int answers = between(random, 2, 7);
    const data::Samples samples = random_samples(random, shape, count, answers, images);
    const std::string text = random_text(random, shape, answers);
    SCOPED_TRACE(fmt::format("seed {}: {} on {}x{}x{}, batch {}", seed, text, shape.channels, shape.height, shape.width, count));
    expect_agreement(text, samples, seed);
  }
}

}  // namespace
}  // namespace starling::compute
