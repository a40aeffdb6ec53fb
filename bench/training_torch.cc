// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The rivals of bench training that are C++: LibTorch as its own documentation uses it, and Starling's torch replica. Answers "MODEL BATCH
// SECONDS" on standard input, see training.cc.
#include <torch/torch.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "starling/compute/torch/torch_replica.h"
#include "starling/optim/optimiser.h"

namespace {

namespace nn = torch::nn;

nn::Sequential make_model(const std::string& name) {
  if (name == "lenet5") {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)), nn::ReLU(), nn::MaxPool2d(2),
                          nn::Conv2d(nn::Conv2dOptions(6, 16, 5)), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(400, 120),
                          nn::ReLU(), nn::Linear(120, 84), nn::ReLU(), nn::Linear(84, 10));
  }
  return nn::Sequential(nn::Flatten(), nn::Linear(784, 1000), nn::ReLU(), nn::Linear(1000, 1000), nn::ReLU(), nn::Linear(1000, 10));
}

template <class Step>
double samples_per_second(std::int64_t batch, double limit, const Step& step) {
  step();
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t steps = 0;
  double seconds = 0;
  while (seconds < limit) {
    step();
    ++steps;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return static_cast<double>(steps * batch) / seconds;
}

double libtorch(const std::string& name, std::int64_t batch, double seconds) {
  nn::Sequential model = make_model(name);
  torch::optim::SGD optimiser(model->parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9));
  const torch::Tensor inputs = torch::randn({batch, 1, 28, 28});
  const torch::Tensor labels = torch::arange(batch) % 10;
  return samples_per_second(batch, seconds, [&] {
    optimiser.zero_grad();
    nn::functional::cross_entropy(model->forward(inputs), labels).backward();
    optimiser.step();
  });
}

double replica(const std::string& name, std::int64_t batch, double seconds) {
  using namespace starling;
  data::Samples samples;
  samples.shape = {1, 28, 28};
  samples.count = static_cast<std::size_t>(batch);
  samples.classes = 10;
  samples.standardisation = {{.scale = 0.011f, .shift = -0.8f}};
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < samples.count; ++i) {
    for (std::uint32_t k = 0; k < 784; ++k) samples.bytes.push_back(static_cast<std::uint8_t>((i * 31 + k * 17) % 251));
    samples.labels.push_back(static_cast<std::int32_t>(i % 10));
    indices.push_back(i);
  }
  const std::unique_ptr<compute::Replica> model =
      compute::torch_backend::make_torch_replica("torch:" + name, compute::Problem::of(samples), 1, 0);
  const std::unique_ptr<optim::Optimiser> optimiser = optim::make_optimiser({.name = "momentum"}, model->layout());
  return samples_per_second(batch, seconds, [&] {
    model->compute_gradient({.samples = &samples, .indices = indices, .number = 0});
    optimiser->step(model->weights(), model->gradient(), 1e-4);
  });
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  at::set_num_interop_threads(1);
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string model;
    std::int64_t batch = 0;
    double seconds = 0;
    words >> model >> batch >> seconds;
    const double plain = libtorch(model, batch, seconds);
    std::cout << "libtorch=" << plain << " replica=" << replica(model, batch, seconds) << std::endl;
  }
  return 0;
}
