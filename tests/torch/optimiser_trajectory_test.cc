// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Our update rules against LibTorch's own, a hundred steps each on the same gradients.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/base/random.h"
#include "starling/optim/optimiser.h"

namespace starling::optim {
namespace {

constexpr std::size_t kSize = 37;
constexpr double kLr = 0.05;
constexpr std::uint64_t kSeed = 20240601;

using Tensors = std::vector<torch::Tensor>;
using MakeTheirs = std::function<std::unique_ptr<torch::optim::Optimizer>(Tensors)>;

// The gradient at step and weights: a pull to 0 and noise, so that weights neither stand still nor run away.
std::vector<float> gradient_at(int step, const std::vector<float>& weights) {
  RandomStream noise(kSeed, static_cast<std::uint32_t>(step), "noise");
  std::vector<float> gradient(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] = 0.5F * weights[i] + static_cast<float>(noise.normal());
  return gradient;
}

void expect_same_path(const OptimiserOptions& options, const MakeTheirs& make_theirs, double clip_norm = 0) {
  SCOPED_TRACE(options.name + ", seed " + std::to_string(kSeed));
  params::Layout layout;
  layout.add("all", {static_cast<std::int64_t>(kSize)});
  const auto ours = make_optimiser(options, layout);
  RandomStream start(kSeed, 0, "start");
  std::vector<float> weights(kSize);
  for (float& weight : weights) weight = static_cast<float>(start.normal());
  torch::Tensor tensor = torch::tensor(weights).requires_grad_();
  const auto theirs = make_theirs({tensor});
  for (int step = 0; step < 100; ++step) {
    const std::vector<float> gradient = gradient_at(step, weights);
    tensor.mutable_grad() = torch::tensor(gradient);
    if (clip_norm > 0) torch::nn::utils::clip_grad_norm_({tensor}, clip_norm);
    theirs->step();
    ours->step(weights, gradient, kLr);
    const float* expected = tensor.data_ptr<float>();
    for (std::size_t i = 0; i < kSize; ++i) ASSERT_NEAR(weights[i], expected[i], 1e-5 * std::max(1.0F, std::abs(expected[i]))) << step;
  }
}

MakeTheirs sgd(const torch::optim::SGDOptions& options) {
  return [options](Tensors tensors) { return std::make_unique<torch::optim::SGD>(tensors, options); };
}

TEST(Trajectory, Sgd) {
  expect_same_path({.name = "sgd"}, sgd(torch::optim::SGDOptions(kLr)));
  expect_same_path({.name = "sgd", .weight_decay = 0.1}, sgd(torch::optim::SGDOptions(kLr).weight_decay(0.1)));
}

TEST(Trajectory, Momentum) {
  expect_same_path({.name = "momentum"}, sgd(torch::optim::SGDOptions(kLr).momentum(0.9)));
  expect_same_path({.name = "momentum", .momentum = 0.5, .weight_decay = 0.1},
                   sgd(torch::optim::SGDOptions(kLr).momentum(0.5).weight_decay(0.1)));
}

TEST(Trajectory, Nesterov) {
  expect_same_path({.name = "nesterov"}, sgd(torch::optim::SGDOptions(kLr).momentum(0.9).nesterov(true)));
  expect_same_path({.name = "nesterov", .weight_decay = 0.1},
                   sgd(torch::optim::SGDOptions(kLr).momentum(0.9).nesterov(true).weight_decay(0.1)));
}

TEST(Trajectory, Adagrad) {
  const auto theirs = [](double decay) -> MakeTheirs {
    return [decay](Tensors tensors) {
      return std::make_unique<torch::optim::Adagrad>(tensors, torch::optim::AdagradOptions(kLr).weight_decay(decay));
    };
  };
  expect_same_path({.name = "adagrad"}, theirs(0));
  expect_same_path({.name = "adagrad", .weight_decay = 0.1}, theirs(0.1));
}

TEST(Trajectory, Adam) {
  const auto theirs = [](double beta1, double beta2, double decay) -> MakeTheirs {
    return [=](Tensors tensors) {
      return std::make_unique<torch::optim::Adam>(tensors, torch::optim::AdamOptions(kLr).betas({beta1, beta2}).weight_decay(decay));
    };
  };
  expect_same_path({.name = "adam"}, theirs(0.9, 0.999, 0));
  expect_same_path({.name = "adam", .beta1 = 0.5, .beta2 = 0.9, .weight_decay = 0.1}, theirs(0.5, 0.9, 0.1));
}

TEST(Trajectory, ClippingByNorm) {
  // Gradients are about 6 long: one limit always cuts, one sometimes, one never.
  for (const double limit : {1.0, 6.0, 100.0}) {
    expect_same_path({.name = "momentum", .clip_norm = limit}, sgd(torch::optim::SGDOptions(kLr).momentum(0.9)), limit);
  }
}

}  // namespace
}  // namespace starling::optim
