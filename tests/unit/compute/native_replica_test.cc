// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/native/native_replica.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <limits>
#include <new>

#include "starling/base/error.h"
#include "starling/compute/model.h"
#include "unit/compute/random_networks.h"
#include "unit/compute/reference_network.h"

namespace starling::compute {
namespace {

// The gradient of every slice, and the loss, against the plain reference.
using DropoutFactor = std::function<double(const LayerSpec&, std::size_t, std::size_t)>;
void expect_like_reference(Replica& replica, const Network& network, const data::Batch& batch, const DropoutFactor& dropout_factor = {}) {
  ReferenceNetwork reference(network, replica.weights());
  reference.dropout_factor = dropout_factor;
  const double loss = replica.compute_gradient(batch);
  EXPECT_NEAR(loss, reference.compute_gradient(batch), 1e-5 * (1 + std::abs(loss)));
  const std::span<const float> gradient = replica.gradient();
  // Slices whose gradient is nothing but rounding (a bias before batch norm) are measured by the whole.
  double whole = 0;
  for (const double g : reference.gradient()) whole += g * g;
  for (const params::Slice& slice : replica.layout().slices()) {
    if (slice.kind == params::SliceKind::buffer) continue;
    const std::span<const double> expected = std::span(reference.gradient()).subspan(slice.offset, slice.size);
    double norm = 0;
    double difference = 0;
    for (std::size_t i = 0; i < slice.size; ++i) {
      norm += expected[i] * expected[i];
      difference += (gradient[slice.offset + i] - expected[i]) * (gradient[slice.offset + i] - expected[i]);
    }
    EXPECT_LE(std::sqrt(difference), 1e-4 * std::sqrt(norm) + 1e-6 * std::sqrt(whole)) << slice.name;
  }
}

TEST(ReferenceNetwork, AgreesWithFiniteDifferences) {
  RandomStream random(5, 0, "test");
  const data::Samples samples = random_samples(random, {2, 7, 6}, 5, 3, true);
  const std::vector<std::uint32_t> indices = all_indices(5);
  const data::Batch batch{.samples = &samples, .indices = indices, .number = 0};
  for (const char* text : {"conv 3 3x2 stride 2 pad 1, batchnorm, tanh, avgpool 2 stride 1, dense 4, sigmoid, dense 3",
                           "maxpool 2, conv 2 2x2 no bias, relu, dense 3, mse"}) {
    const Network network = parse_network(text, Problem::of(samples));
    std::vector<float> weights(layout_of(network).size());
    initialise(network, 3, weights);
    ReferenceNetwork reference(network, weights);
    reference.compute_gradient(batch);
    const Numbers gradient = reference.gradient();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double weight = reference.weights()[i];
      reference.weights()[i] = weight + 1e-6;
      const double above = reference.forward(batch, true);
      reference.weights()[i] = weight - 1e-6;
      const double below = reference.forward(batch, true);
      reference.weights()[i] = weight;
      EXPECT_NEAR(gradient[i], (above - below) / 2e-6, 1e-7) << text << " weight " << i;
    }
  }
}

TEST(NativeReplica, GradientsOfTheNamedModelsAreThoseOfTheReference) {
  RandomStream random(74, 0, "test");  // A seed for which no maximum and no relu is decided by rounding.
  const data::Samples images = random_samples(random, {1, 28, 28}, 19, 10, true);
  const data::Samples colours = random_samples(random, {3, 32, 32}, 3, 10, true);
  const data::Samples numbers = random_samples(random, {12, 1, 1}, 50, 1, false);
  const auto check = [](const char* model, const data::Samples& samples) {
    SCOPED_TRACE(model);
    const std::vector<std::uint32_t> indices = all_indices(samples.count);
    const data::Batch batch{.samples = &samples, .indices = indices, .number = 0};
    const std::unique_ptr<Replica> replica = make_replica(model, Problem::of(samples), 1, 0);
    expect_like_reference(*replica, parse_network(model, Problem::of(samples)), batch);
  };
  check("lenet5", images);
  check("softmax", images);
  check("mlp:784-150-10", images);
  check("cifar10-full", colours);
  check("quadratic", numbers);
}

// Both forms of an edge, every conversion between them, and what works in place on either.
TEST(NativeReplica, LargeAndSmallLayersMix) {
  RandomStream random(8, 0, "test");
  const data::Samples samples = random_samples(random, {1, 20, 20}, 37, 6, true);
  const std::vector<std::uint32_t> indices = all_indices(37);
  for (const char* text :
       {"dense 300, relu, dense 350, tanh, batchnorm, dense 6", "conv 3 3x3, batchnorm, relu, dense 120, dropout 0, dense 6",
        "conv 2 3x3, sigmoid, batchnorm, maxpool 2, dense 30, tanh, dropout 0, dense 6", "relu, dense 260, dense 6",
        "batchnorm, conv 4 3x3, relu, maxpool 3 stride 2 ceil, dense 6", "maxpool 4, avgpool 2 stride 1, dense 6, tanh, sigmoid",
        "dense 400, dense 300, dense 6"}) {
    SCOPED_TRACE(text);
    const Network network = parse_network(text, Problem::of(samples));
    const std::unique_ptr<Replica> replica = native::make_native_replica(network, 3, 0, {.direct_dense_weights = 10'000});
    for (const std::size_t count : {37U, 1U, 16U, 20U}) {
      if (count == 1 && network.text.find("batchnorm") != std::string::npos) continue;  // The variance of one sample is no statistic.
      SCOPED_TRACE(count);
      expect_like_reference(*replica, network, {.samples = &samples, .indices = std::span(indices).first(count), .number = 0});
    }
  }
}

TEST(NativeReplica, GradientsOfRandomNetworksAreThoseOfTheReference) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    RandomStream random(seed, 0, "network");
    const data::Shape shape{between(random, 1, 3), between(random, 1, 12), between(random, 1, 12)};
    const bool images = between(random, 0, 3) > 0;
    const std::size_t count = static_cast<std::size_t>(between(random, 2, 40));
    const int answers = between(random, 2, 7);
    const data::Samples samples = random_samples(random, shape, count, answers, images);
    const std::string text = random_text(random, shape, answers);
    SCOPED_TRACE(fmt::format("seed {}: {} on {}x{}x{}, batch {}", seed, text, shape.channels, shape.height, shape.width, count));
    const Network network = parse_network(text, Problem::of(samples));
    const std::unique_ptr<Replica> replica =
        native::make_native_replica(network, seed, 0, {.direct_dense_weights = seed % 2 == 0 ? 100U : 1'000'000U});
    const std::vector<std::uint32_t> indices = all_indices(count);
    expect_like_reference(*replica, network, {.samples = &samples, .indices = indices, .number = 0});
  }
}

// The kernels are compiled for several instruction sets, and the machine that runs the tests would choose only the best.
TEST(NativeReplica, EveryInstructionSetComputesTheSame) {
  RandomStream random(14, 0, "test");
  const data::Samples samples = random_samples(random, {2, 13, 11}, 21, 5, true);
  const std::vector<std::uint32_t> indices = all_indices(21);
  const data::Batch batch{.samples = &samples, .indices = indices, .number = 0};
  const Network network = parse_network(
      "conv 7 3x3 pad 1, batchnorm, relu, maxpool 2, conv 5 4x2 stride 2, tanh, avgpool 2 stride 1, dense 13, sigmoid, dense 5",
      Problem::of(samples));
  std::int64_t tested = 0;
  for (const std::int64_t set : {HWY_SCALAR, HWY_SSE4, HWY_AVX2, HWY_NEON}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & set) == 0 && set != HWY_SCALAR) continue;
    hwy::SetSupportedTargetsForTest(set);
    SCOPED_TRACE(hwy::TargetName(set));
    expect_like_reference(*native::make_native_replica(network, 1, 0), network, batch);
    tested |= set;
  }
  hwy::SetSupportedTargetsForTest(0);
#ifdef __x86_64__
  EXPECT_NE(tested & HWY_SSE4, 0);
#endif
}

// The reference is told what the layer drops: a stream by seed, rank and name, read in the order in which the numbers lie in memory. In
// both forms of an edge, and with all that may work in place around it.
TEST(NativeReplica, GradientsThroughDropoutAreThoseOfTheReference) {
  constexpr std::size_t kSamples = 21;
  constexpr std::uint64_t kNumber = 5;
  RandomStream random(15, 0, "test");
  const data::Samples samples = random_samples(random, {2, 8, 8}, kSamples, 4, true);
  const std::vector<std::uint32_t> indices = all_indices(kSamples);
  const data::Batch batch{.samples = &samples, .indices = indices, .number = kNumber};
  for (const char* text :
       {"conv 3 3x3, tanh, dropout 0.4, dense 4", "dense 30, relu, dropout 0.5, sigmoid, dense 4", "dropout 0.3, dense 20, tanh, dense 4",
        "dense 30, sigmoid, dropout 0.2, batchnorm, dense 4", "dense 20, relu, dropout 0.3, batchnorm, dense 4",
        "conv 4 3x3, relu, maxpool 2, dropout 0.3, batchnorm, dense 4", "dense 16, relu, dropout 0.3, dropout 0.2, sigmoid, dense 4",
        "dense 12, conv 5 1x1, tanh, dropout 0.5, dense 4"}) {
    for (const bool matrix : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", text, matrix ? "as matrices" : "in groups"));
      const Network network = parse_network(text, Problem::of(samples));
      const std::unique_ptr<Replica> replica =
          native::make_native_replica(network, 3, 1, {.direct_dense_weights = matrix ? 0U : 1'000'000U});
      const auto factor = [&](const LayerSpec& layer, std::size_t sample, std::size_t feature) {
        // The form of an edge is that of the layer it comes from, or the first layer's.
        bool after_dense = matrix && network.layers[0].kind != LayerKind::conv;
        for (const LayerSpec& before : network.layers) {
          if (before.name == layer.name) break;
          if (before.kind == LayerKind::dense) after_dense = matrix;
          if (before.kind == LayerKind::conv) after_dense = false;
        }
        const std::uint64_t at = after_dense ? feature * 32 + sample : (sample / 16 * layer.input.size() + feature) * 16 + sample % 16;
        RandomStream stream(3, 1, layer.name);
        stream.seek((kNumber << 32) + at);
        return stream.next_u32() < std::ldexp(layer.rate, 32) ? 0.0 : 1 / (1 - layer.rate);
      };
      expect_like_reference(*replica, network, batch, factor);
    }
  }
}

TEST(NativeReplica, ActivationsHoldAtAllNumbers) {
  data::Samples samples;
  samples.shape = {1, 1, 1};
  samples.count = 1;
  samples.floats = {1};
  samples.targets = {0};
  samples.outputs = 1;
  const std::vector<std::uint32_t> indices = all_indices(1);
  const data::Batch batch{.samples = &samples, .indices = indices, .number = 0};
  const auto applied = [&](const char* activation, float x) {  // The loss is the square of the output.
    const std::unique_ptr<Replica> replica = make_replica(fmt::format("dense 1 no bias, {}", activation), Problem::of(samples), 1, 0);
    replica->weights()[0] = x;
    return std::sqrt(replica->evaluate(batch, {}).loss_sum);
  };
  for (const float x : {0.0f, 1.0f, -1.0f, 20.0f, -20.0f, 88.0f, -88.0f, -105.0f, 178.0f, -178.0f, 1e6f, -1e6f}) {
    EXPECT_NEAR(applied("sigmoid", x), 1 / (1 + std::exp(-static_cast<double>(x))), 1e-6) << x;
    EXPECT_NEAR(applied("tanh", x), std::abs(std::tanh(static_cast<double>(x))), 1e-6) << x;
    EXPECT_NEAR(applied("relu", x), std::max(x, 0.0f), 1e-6 * std::abs(static_cast<double>(x))) << x;
  }
  for (const char* activation : {"sigmoid", "tanh", "relu"}) {
    EXPECT_TRUE(std::isnan(applied(activation, std::numeric_limits<float>::quiet_NaN()))) << activation;
  }
}

TEST(NativeReplica, EvaluationCountsWhatTheReferencePredicts) {
  RandomStream random(9, 0, "test");
  const data::Samples samples = random_samples(random, {2, 9, 9}, 45, 4, true);
  const std::vector<std::uint32_t> indices = all_indices(45);
  const data::Batch batch{.samples = &samples, .indices = indices, .number = 0};
  const Network network = parse_network("conv 5 3x3, batchnorm, relu, maxpool 2, dropout 0.5, dense 4", Problem::of(samples));
  const std::unique_ptr<Replica> replica = native::make_native_replica(network, 1, 0);
  replica->compute_gradient(batch);  // So that the running statistics have moved.
  ReferenceNetwork reference(network, replica->weights());
  const std::vector<float> before(replica->weights().begin(), replica->weights().end());
  std::vector<std::int32_t> predictions(45);
  const Evaluation evaluation = replica->evaluate(batch, predictions);
  EXPECT_NEAR(evaluation.loss_sum / 45, reference.forward(batch, false), 1e-5);
  EXPECT_EQ(evaluation.samples, 45U);
  std::size_t correct = 0;
  for (std::size_t s = 0; s < 45; ++s) {
    const auto row = reference.outputs().begin() + static_cast<std::ptrdiff_t>(s * 4);
    const auto best = std::max_element(row, row + 4) - row;
    EXPECT_EQ(predictions[s], best);
    if (best == samples.labels[s]) ++correct;
  }
  EXPECT_EQ(evaluation.correct, correct);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), replica->weights().begin()));
}

TEST(NativeReplica, RunningStatisticsFollowTheBatches) {
  data::Samples samples;
  samples.shape = {1, 1, 1};
  samples.count = 4;
  samples.floats = {1, 2, 3, 6};  // Mean 3, unbiased variance 14 / 3.
  samples.targets = {0, 0, 0, 0};
  samples.outputs = 1;
  const std::vector<std::uint32_t> indices = all_indices(4);
  const std::unique_ptr<Replica> replica = make_replica("batchnorm, dense 1", Problem::of(samples), 1, 0);
  replica->compute_gradient({.samples = &samples, .indices = indices, .number = 0});
  const auto buffer = [&](const char* name) { return replica->weights()[replica->layout().find(name)->offset]; };
  EXPECT_FLOAT_EQ(buffer("norm1.mean"), 0.3f);
  EXPECT_FLOAT_EQ(buffer("norm1.variance"), static_cast<float>(0.9 + 1.4 / 3));
}

// In training it is batch norm; evaluating, it is what it is in training. Nothing is remembered from one batch to the next.
TEST(NativeReplica, BatchStatisticsAlsoServeEvaluation) {
  RandomStream random(21, 0, "test");
  const data::Samples samples = random_samples(random, {1, 9, 8}, 45, 4, true);
  const std::vector<std::uint32_t> indices = all_indices(45);
  for (const char* text : {"conv 3 3x3, batchnorm batch, relu, dense 30, batchnorm batch, tanh, dense 4",
                           "batchnorm batch, dense 300, batchnorm batch, dense 4"}) {
    SCOPED_TRACE(text);
    const Network network = parse_network(text, Problem::of(samples));
    const std::unique_ptr<Replica> replica = native::make_native_replica(network, 3, 0, {.direct_dense_weights = 10'000});
    EXPECT_EQ(replica->layout().size(), replica->layout().parameter_count()) << "it has buffers";
    ReferenceNetwork reference(network, replica->weights());
    for (const std::size_t count : {45U, 2U, 17U, 45U}) {
      const data::Batch batch{.samples = &samples, .indices = std::span(indices).first(count), .number = 0};
      expect_like_reference(*replica, network, batch);
      const double loss = replica->evaluate(batch, {}).loss_sum / static_cast<double>(count);
      EXPECT_NEAR(loss, reference.forward(batch, true), 1e-5);
      EXPECT_NEAR(loss, reference.forward(batch, false), 1e-5);
    }
  }
}

// What a sample gives depends on the batch it is in.
TEST(NativeReplica, WithBatchStatisticsTheAnswerDependsOnTheBatch) {
  RandomStream random(22, 0, "test");
  const data::Samples samples = random_samples(random, {6, 1, 1}, 8, 3, true);
  const std::vector<std::uint32_t> indices = all_indices(8);
  const auto loss_of = [&](const char* model, std::size_t batch) {
    const std::unique_ptr<Replica> replica = make_replica(model, Problem::of(samples), 1, 0);
    Evaluation sum;
    for (std::size_t first = 0; first < 8; first += batch) {
      sum += replica->evaluate({.samples = &samples, .indices = std::span(indices).subspan(first, batch), .number = 0}, {});
    }
    return sum.loss_sum;
  };
  EXPECT_NEAR(loss_of("dense 5, batchnorm, dense 3", 8), loss_of("dense 5, batchnorm, dense 3", 4), 1e-5);
  EXPECT_GT(std::abs(loss_of("dense 5, batchnorm batch, dense 3", 8) - loss_of("dense 5, batchnorm batch, dense 3", 4)), 1e-3);
}

TEST(NativeReplica, DropoutIsAFunctionOfSeedRankAndBatch) {
  RandomStream random(10, 0, "test");
  const data::Samples samples = random_samples(random, {30, 1, 1}, 64, 5, false);
  const std::vector<std::uint32_t> indices = all_indices(64);
  const auto gradient = [&](std::uint64_t seed, std::uint32_t rank, std::uint64_t number, const char* model) {
    const std::unique_ptr<Replica> replica = make_replica(model, Problem::of(samples), 1, rank);
    if (seed != 1) {
      const std::unique_ptr<Replica> other = make_replica(model, Problem::of(samples), seed, rank);
      std::copy(replica->weights().begin(), replica->weights().end(), other->weights().begin());
      other->compute_gradient({.samples = &samples, .indices = indices, .number = number});
      return std::vector<float>(other->gradient().begin(), other->gradient().end());
    }
    replica->compute_gradient({.samples = &samples, .indices = indices, .number = number});
    return std::vector<float>(replica->gradient().begin(), replica->gradient().end());
  };
  const char* model = "dense 50, relu, dropout 0.3, dense 5, mse";
  const std::vector<float> first = gradient(1, 0, 7, model);
  EXPECT_EQ(first, gradient(1, 0, 7, model));
  EXPECT_NE(first, gradient(1, 0, 8, model));
  EXPECT_NE(first, gradient(1, 1, 7, model));
  EXPECT_NE(first, gradient(2, 0, 7, model));
}

TEST(NativeReplica, DropoutKeepsTheMeanAndDropsItsShare) {
  data::Samples samples;
  samples.shape = {1000, 1, 1};
  samples.count = 16;
  samples.floats.assign(16000, 1.0f);
  samples.targets.assign(16, 0.0f);
  samples.outputs = 1;
  const std::vector<std::uint32_t> indices = all_indices(16);
  const std::unique_ptr<Replica> replica = make_replica("dropout 0.25, dense 1 no bias", Problem::of(samples), 1, 0);
  std::fill(replica->weights().begin(), replica->weights().end(), 0.001f);
  // Outputs are the share of inputs kept, over 0.75: close to 1, and their squares the loss.
  const double loss = replica->compute_gradient({.samples = &samples, .indices = indices, .number = 1});
  EXPECT_NEAR(loss, 1, 0.02);
  // A weight's gradient is twice the mean over samples of output × kept / 0.75: 0 for none kept, 2.67 for all.
  EXPECT_NEAR(std::accumulate(replica->gradient().begin(), replica->gradient().end(), 0.0) / 1000, 2, 0.05);
  EXPECT_NEAR(replica->evaluate({.samples = &samples, .indices = indices, .number = 1}, {}).loss_sum, 16, 0.001);
}

TEST(NativeReplica, TheSameBitsEveryTimeAndForEveryPlaceInMemory) {
  RandomStream random(11, 0, "test");
  const data::Samples samples = random_samples(random, {1, 28, 28}, 50, 10, true);
  const std::vector<std::uint32_t> indices = all_indices(50);
  for (const native::NativeOptions options : {native::NativeOptions{}, native::NativeOptions{.direct_dense_weights = 0}}) {
    const Network network = parse_network("lenet5", Problem::of(samples));
    const std::unique_ptr<Replica> first = native::make_native_replica(network, 4, 0, options);
    const std::unique_ptr<Replica> second = native::make_native_replica(network, 4, 0, options);
    second->compute_gradient({.samples = &samples, .indices = std::span(indices).first(3), .number = 0});  // Grows later.
    const double loss = first->compute_gradient({.samples = &samples, .indices = indices, .number = 0});
    EXPECT_EQ(loss, second->compute_gradient({.samples = &samples, .indices = indices, .number = 0}));
    EXPECT_TRUE(std::equal(first->gradient().begin(), first->gradient().end(), second->gradient().begin()));
  }
}

TEST(NativeReplica, ANumberThatIsNoneReachesTheLoss) {
  RandomStream random(12, 0, "test");
  const data::Samples samples = random_samples(random, {1, 28, 28}, 5, 10, true);
  const std::vector<std::uint32_t> indices = all_indices(5);
  const data::Batch batch{.samples = &samples, .indices = indices, .number = 0};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const char* name : {"conv1.weight", "conv1.bias", "conv2.weight", "dense1.weight", "dense3.bias"}) {
      const std::unique_ptr<Replica> replica = make_replica("lenet5", Problem::of(samples), 1, 0);
      replica->weights()[replica->layout().find(name)->offset] = bad;
      EXPECT_FALSE(std::isfinite(replica->compute_gradient(batch))) << name << " " << bad;
      EXPECT_FALSE(std::isfinite(replica->evaluate(batch, {}).loss_sum)) << name << " " << bad;
    }
  }
}

TEST(NativeReplica, ABatchOfNoSamplesOrOfAnotherShapeIsRefused) {
  RandomStream random(13, 0, "test");
  const data::Samples samples = random_samples(random, {1, 4, 4}, 5, 2, true);
  const data::Samples others = random_samples(random, {1, 5, 5}, 5, 2, true);
  const std::vector<std::uint32_t> indices = all_indices(5);
  const std::unique_ptr<Replica> replica = make_replica("dense 2", Problem::of(samples), 1, 0);
  EXPECT_THROW(replica->compute_gradient({.samples = &samples, .indices = {}, .number = 0}), BrokenInvariant);
  EXPECT_THROW(replica->compute_gradient({.samples = &others, .indices = indices, .number = 0}), BrokenInvariant);
  const data::Samples flat = random_samples(random, {16, 1, 1}, 5, 2, true);
  EXPECT_THROW(replica->compute_gradient({.samples = &flat, .indices = indices, .number = 0}), BrokenInvariant);
}

}  // namespace
}  // namespace starling::compute
