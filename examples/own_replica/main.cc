// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A model of your own, without any framework: a line through points, y = a x + b. Whatever has a layout, weights and a gradient can be
// trained.
#include <iostream>
#include <vector>

#include "starling/compute/replica.h"
#include "starling/data/batches.h"
#include "starling/optim/optimiser.h"

using namespace starling;

class Line final : public compute::Replica {
 public:
  Line() { layout_.add("slope", {1}), layout_.add("offset", {1}); }

  const params::Layout& layout() const override { return layout_; }
  std::span<float> weights() override { return weights_; }
  std::span<float> gradient() override { return gradient_; }
  double operations_per_sample() const override { return 2; }
  std::string describe() const override { return "y = a x + b"; }

  double compute_gradient(const data::Batch& batch) override {
    gradient_ = {0, 0};
    for (const std::uint32_t i : batch.indices) {
      gradient_[0] += 2 * error(batch, i) * batch.samples->floats[i] / static_cast<float>(batch.size());
      gradient_[1] += 2 * error(batch, i) / static_cast<float>(batch.size());
    }
    return evaluate(batch, {}).loss_sum / static_cast<double>(batch.size());
  }

  compute::Evaluation evaluate(const data::Batch& batch, std::span<std::int32_t> /*predictions*/) override {
    compute::Evaluation result{.samples = batch.size()};
    for (const std::uint32_t i : batch.indices) result.loss_sum += error(batch, i) * error(batch, i);
    return result;
  }

 private:
  float error(const data::Batch& batch, std::uint32_t i) const {
    return weights_[0] * batch.samples->floats[i] + weights_[1] - batch.samples->targets[i];
  }
  params::Layout layout_;
  std::vector<float> weights_{0, 0}, gradient_{0, 0};
};

int main() {
  const data::Samples points{.count = 5, .floats = {0, 1, 2, 3, 4}, .targets = {1, 3, 5, 7, 9}, .outputs = 1};
  Line line;
  data::BatchOrder order({0, 1, 2, 3, 4}, /*seed=*/1, /*rank=*/0);
  const auto optimiser = optim::make_optimiser({.name = "momentum"}, line.layout());
  while (order.epoch() < 500) {
    line.compute_gradient({.samples = &points, .indices = order.next(2), .number = order.number()});
    optimiser->step(line.weights(), line.gradient(), 0.01);
  }
  std::cout << "y = " << line.weights()[0] << " x + " << line.weights()[1] << "\n";
}
