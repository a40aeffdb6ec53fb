// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A data set and a model small enough to be seen through: points around three centres, and softmax regression written plainly. Its one
// buffer counts the batches it has seen, so that a buffer which does not travel is noticed.
#pragma once

#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "starling/base/random.h"
#include "starling/compute/replica.h"
#include "starling/data/dataset.h"

namespace starling::run {

inline constexpr int kClasses = 3;
inline constexpr int kInputs = 4;

inline data::Samples small_samples(std::size_t count, std::uint64_t seed) {
  data::Samples samples;
  samples.shape = {.channels = 1, .height = 1, .width = kInputs};
  samples.count = count;
  samples.classes = kClasses;
  RandomStream random(seed, 0, "small samples");
  for (std::size_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>(random.below(kClasses));
    samples.labels.push_back(label);
    for (int j = 0; j < kInputs; ++j) samples.floats.push_back(static_cast<float>((j == label ? 2.0 : 0.0) + random.normal()));
  }
  samples.standardisation = {{}};
  return samples;
}

inline data::Dataset small_dataset(std::size_t train = 200, std::size_t test = 60) {
  return {.name = "small", .train = small_samples(train, 1), .test = small_samples(test, 2), .class_names = {"a", "b", "c"}};
}

class SmallReplica : public compute::Replica {
 public:
  explicit SmallReplica(int inputs = kInputs) {
    layout_.add("weight", {kClasses, inputs});
    layout_.add("bias", {kClasses});
    layout_.add("batches", {1}, params::SliceKind::buffer);
    weights_.assign(layout_.size(), 0);
    gradient_.assign(layout_.parameter_count(), 0);
  }

  // From the batch of this number on, the loss is NaN; 0 for never. With `once`, only for that batch.
  std::uint64_t nan_at = 0;
  bool once = false;
  bool nan_gradient = false;  // Not the loss, but the gradient.

  const params::Layout& layout() const override { return layout_; }
  std::span<float> weights() override { return weights_; }
  std::span<float> gradient() override { return gradient_; }
  double operations_per_sample() const override { return 2 * kClasses * kInputs; }
  std::string describe() const override { return "softmax regression"; }

  double compute_gradient(const data::Batch& batch) override {
    gradient_.assign(gradient_.size(), 0);
    double loss = 0;
    for (const std::uint32_t index : batch.indices) {
      const std::vector<double> probabilities = probabilities_of(*batch.samples, index);
      const int label = batch.samples->labels[index];
      loss -= std::log(probabilities[static_cast<std::size_t>(label)]);
      for (int c = 0; c < kClasses; ++c) {
        const double error = (probabilities[static_cast<std::size_t>(c)] - (c == label ? 1 : 0)) / static_cast<double>(batch.size());
        for (int j = 0; j < kInputs; ++j) at(gradient_, c, j) += static_cast<float>(error * input(*batch.samples, index, j));
        at(gradient_, kClasses, c) += static_cast<float>(error);
      }
    }
    weights_.back() += 1;
    const bool bad = nan_at != 0 && (once ? batch.number == nan_at : batch.number >= nan_at);
    if (bad && nan_gradient) gradient_[1] = std::numeric_limits<float>::infinity();
    if (bad && !nan_gradient) return std::numeric_limits<double>::quiet_NaN();
    return loss / static_cast<double>(batch.size());
  }

  compute::Evaluation evaluate(const data::Batch& batch, std::span<std::int32_t> predictions) override {
    compute::Evaluation evaluation{.samples = batch.size()};
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::vector<double> probabilities = probabilities_of(*batch.samples, batch.indices[i]);
      const int label = batch.samples->labels[batch.indices[i]];
      int best = 0;
      for (int c = 1; c < kClasses; ++c) {
        if (probabilities[static_cast<std::size_t>(c)] > probabilities[static_cast<std::size_t>(best)]) best = c;
      }
      evaluation.loss_sum -= std::log(probabilities[static_cast<std::size_t>(label)]);
      evaluation.correct += best == label ? 1 : 0;
      if (!predictions.empty()) predictions[i] = best;
    }
    return evaluation;
  }

 private:
  static float& at(std::vector<float>& values, int row, int column) { return values[static_cast<std::size_t>(row * kInputs + column)]; }
  static double input(const data::Samples& samples, std::uint32_t index, int column) {
    return static_cast<double>(samples.floats[index * kInputs + static_cast<std::size_t>(column)]);
  }

  std::vector<double> probabilities_of(const data::Samples& samples, std::uint32_t index) {
    std::vector<double> result;
    double sum = 0;
    for (int c = 0; c < kClasses; ++c) {
      double score = static_cast<double>(at(weights_, kClasses, c));
      for (int j = 0; j < kInputs; ++j) score += static_cast<double>(at(weights_, c, j)) * input(samples, index, j);
      result.push_back(std::exp(score));
      sum += result.back();
    }
    for (double& probability : result) probability /= sum;
    return result;
  }

  params::Layout layout_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
};

// Notes the samples of every batch it computes on.
class WatchedReplica final : public SmallReplica {
 public:
  WatchedReplica(std::mutex& mutex, std::vector<std::uint32_t>& seen) : mutex_(mutex), seen_(seen) {}

  double compute_gradient(const data::Batch& batch) override {
    {
      const std::lock_guard lock(mutex_);
      seen_.insert(seen_.end(), batch.indices.begin(), batch.indices.end());
    }
    return SmallReplica::compute_gradient(batch);
  }

 private:
  std::mutex& mutex_;
  std::vector<std::uint32_t>& seen_;
};

}  // namespace starling::run
