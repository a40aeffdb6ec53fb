// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Where a batch enters a network, and where its loss leaves it.
#include <algorithm>
#include <array>
#include <cmath>

#include "starling/compute/native/element_kernels.h"
#include "starling/compute/native/layer.h"

namespace starling::compute::native {
namespace {

class InputLayer final : public Layer {
 public:
  InputLayer(const data::Shape& shape, Edge* out) : shape_(shape), out_(out) {}

  bool whole_batch() const override { return out_->matrix; }

  void forward(const Pass& pass, std::size_t group) override {
    if (!out_->matrix) return fill(pass, group, out_->value(group), kGroup);
    for (std::size_t each = 0; each < pass.groups(); ++each) fill(pass, each, out_->values + each * kGroup, pass.lanes());
  }

  void backward(const Pass& /*pass*/, std::size_t /*group*/) override {}

 private:
  // One group into lanes that are `step` floats apart from feature to feature.
  void fill(const Pass& pass, std::size_t group, float* to, std::size_t step) const {
    const data::Samples& samples = *pass.batch->samples;
    if (!samples.bytes.empty()) {
      fill_from(samples.bytes.data(), samples, pass, group, to, step);
    } else {
      fill_from(samples.floats.data(), samples, pass, group, to, step);
    }
  }

  template <class T>
  void fill_from(const T* source, const data::Samples& samples, const Pass& pass, std::size_t group, float* to, std::size_t step) const {
    // Lanes without a sample repeat the first: any number does, and a finite one is no trouble.
    std::array<const T*, kGroup> rows{};
    const int used = pass.samples_in(group);
    for (int lane = 0; lane < kGroup; ++lane) {
      const std::size_t index = pass.batch->indices[group * kGroup + static_cast<std::size_t>(lane < used ? lane : 0)];
      rows[static_cast<std::size_t>(lane)] = source + index * shape_.size();
    }
    const std::size_t plane = shape_.size() / static_cast<std::size_t>(shape_.channels);
    for (std::size_t channel = 0; channel < static_cast<std::size_t>(shape_.channels); ++channel) {
      const data::Standardisation standard = samples.standardisation.empty() ? data::Standardisation{} : samples.standardisation[channel];
      for (std::size_t i = channel * plane; i < (channel + 1) * plane; ++i) {
        for (std::size_t lane = 0; lane < kGroup; ++lane) to[lane] = static_cast<float>(rows[lane][i]) * standard.scale + standard.shift;
        to += step;
      }
    }
  }

  data::Shape shape_;
  Edge* out_;
};

// What the two losses share: outputs [output][kGroup], and answers that are classes or numbers.
class GroupLoss : public LossLayer {
 public:
  GroupLoss(int outputs, Edge* in) : outputs_(static_cast<std::size_t>(outputs)), in_(in) {}

  double loss_sum() const final { return loss_sum_; }
  std::size_t correct() const final { return correct_; }

  void begin(const Pass& /*pass*/) final {
    loss_sum_ = 0;
    correct_ = 0;
  }

  void forward(const Pass& pass, std::size_t group) final {
    const float* values = in_->value(group);
    loss_sum_ += loss(pass, group, values, pass.training ? in_->gradient(group) : nullptr);
    if (!pass.training && pass.batch->samples->has_labels()) count_correct(pass, group, values);
  }

  void backward(const Pass& /*pass*/, std::size_t /*group*/) final {}

 protected:
  // The losses of the group, added up; the gradient of the mean over the batch, if it is wanted.
  virtual double loss(const Pass& pass, std::size_t group, const float* values, float* gradient) = 0;

  std::int32_t label(const Pass& pass, std::size_t group, int lane) const {
    return pass.batch->samples->labels[pass.batch->indices[group * kGroup + static_cast<std::size_t>(lane)]];
  }

  std::size_t outputs() const { return outputs_; }

 private:
  void count_correct(const Pass& pass, std::size_t group, const float* values) {
    for (int lane = 0; lane < pass.samples_in(group); ++lane) {
      std::size_t best = 0;
      for (std::size_t output = 1; output < outputs_; ++output) {
        if (values[output * kGroup + static_cast<std::size_t>(lane)] > values[best * kGroup + static_cast<std::size_t>(lane)])
          best = output;
      }
      if (static_cast<std::int32_t>(best) == label(pass, group, lane)) ++correct_;
      if (!pass.predictions.empty()) pass.predictions[group * kGroup + static_cast<std::size_t>(lane)] = static_cast<std::int32_t>(best);
    }
  }

  std::size_t outputs_;
  Edge* in_;
  double loss_sum_ = 0;
  std::size_t correct_ = 0;
};

class CrossEntropyLoss final : public GroupLoss {
 public:
  using GroupLoss::GroupLoss;

 private:
  double loss(const Pass& pass, std::size_t group, const float* values, float* gradient) override {
    const int used = pass.samples_in(group);
    std::array<std::int32_t, kGroup> labels{};
    for (int lane = 0; lane < used; ++lane) labels[static_cast<std::size_t>(lane)] = label(pass, group, lane);
    alignas(64) std::array<float, kGroup> losses{};
    softmax_cross_entropy(static_cast<int>(outputs()), values, labels.data(), used, 1.0f / static_cast<float>(pass.samples()),
                          losses.data(), gradient);
    double sum = 0;
    for (int lane = 0; lane < used; ++lane) sum += losses[static_cast<std::size_t>(lane)];
    return sum;
  }
};

// The mean over outputs of squared differences; a class counts as 1 for its output and 0 for the others.
class SquaredLoss final : public GroupLoss {
 public:
  using GroupLoss::GroupLoss;

 private:
  double loss(const Pass& pass, std::size_t group, const float* values, float* gradient) override {
    const data::Samples& samples = *pass.batch->samples;
    const double per_output = 1.0 / static_cast<double>(outputs());
    const float weight = static_cast<float>(2 * per_output / static_cast<double>(pass.samples()));
    if (gradient != nullptr) std::fill_n(gradient, outputs() * kGroup, 0.0f);
    double sum = 0;
    for (int lane = 0; lane < pass.samples_in(group); ++lane) {
      const std::size_t index = pass.batch->indices[group * kGroup + static_cast<std::size_t>(lane)];
      for (std::size_t output = 0; output < outputs(); ++output) {
        const float target = samples.has_labels() ? (samples.labels[index] == static_cast<std::int32_t>(output) ? 1.0f : 0.0f)
                                                  : samples.targets[index * outputs() + output];
        const std::size_t at = output * kGroup + static_cast<std::size_t>(lane);
        const float difference = values[at] - target;
        sum += static_cast<double>(difference) * static_cast<double>(difference) * per_output;
        if (gradient != nullptr) gradient[at] = weight * difference;
      }
    }
    return sum;
  }
};

}  // namespace

std::unique_ptr<Layer> make_input(const data::Shape& shape, Edge* out) { return std::make_unique<InputLayer>(shape, out); }

std::unique_ptr<LossLayer> make_loss(LossKind kind, int outputs, Edge* in) {
  if (kind == LossKind::mse) return std::make_unique<SquaredLoss>(outputs, in);
  return std::make_unique<CrossEntropyLoss>(outputs, in);
}

}  // namespace starling::compute::native
