// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "starling/base/aligned_floats.h"
#include "starling/base/random.h"
#include "starling/compute/native/element_kernels.h"
#include "starling/compute/native/layer.h"

namespace starling::compute::native {
namespace {

// The floats of one call of a layer that works in place: of one group, or of all lanes of a matrix.
std::size_t extent(const Edge& edge, const Pass& pass) { return edge.features * (edge.matrix ? pass.lanes() : kGroup); }

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(const LayerParts& parts) : edge_(parts.out), activation_(activation_of(parts.spec->kind)) {}

  bool whole_batch() const override { return edge_->matrix; }
  void forward(const Pass& pass, std::size_t group) override { activate(activation_, edge_->value(group), extent(*edge_, pass)); }
  void backward(const Pass& pass, std::size_t group) override {
    activation_gradient(activation_, edge_->value(group), edge_->gradient(group), extent(*edge_, pass));
  }

 private:
  static Activation activation_of(LayerKind kind) {
    if (kind == LayerKind::relu) return Activation::relu;
    return kind == LayerKind::tanh ? Activation::tanh : Activation::sigmoid;
  }

  Edge* edge_;
  Activation activation_;
};

class PoolingLayer final : public Layer {
 public:
  explicit PoolingLayer(const LayerParts& parts)
      : parts_(parts),
        geometry_{.channels = parts.spec->input.channels,
                  .in_height = parts.spec->input.height,
                  .in_width = parts.spec->input.width,
                  .out_height = parts.spec->output.height,
                  .out_width = parts.spec->output.width,
                  .kernel = parts.spec->kernel_height,
                  .stride = parts.spec->stride},
        maximum_(parts.spec->kind == LayerKind::maxpool) {}

  void reserve(std::size_t groups) override {
    const std::size_t size = parts_.out->features * kGroup;
    chosen_step_ = parts_.out->value_step == 0 ? 0 : size;
    if (maximum_) chosen_.resize(std::max(chosen_.size(), chosen_step_ == 0 ? size : size * groups));
  }

  void forward(const Pass& /*pass*/, std::size_t group) override {
    if (maximum_) {
      max_pool(geometry_, parts_.in->value(group), parts_.out->value(group), chosen_.data() + group * chosen_step_);
    } else {
      average_pool(geometry_, parts_.in->value(group), parts_.out->value(group));
    }
  }

  void backward(const Pass& /*pass*/, std::size_t group) override {
    if (!parts_.input_gradient) return;
    if (maximum_) {
      max_pool_gradient(geometry_, parts_.out->gradient(group), chosen_.data() + group * chosen_step_, parts_.in->gradient(group));
    } else {
      average_pool_gradient(geometry_, parts_.out->gradient(group), parts_.in->gradient(group));
    }
  }

 private:
  LayerParts parts_;
  PoolGeometry geometry_;
  bool maximum_;
  std::vector<std::int32_t> chosen_;
  std::size_t chosen_step_ = 0;
};

class DropoutLayer final : public Layer {
 public:
  DropoutLayer(const LayerParts& parts, std::uint64_t seed, std::uint32_t rank)
      : edge_(parts.out),
        random_(seed, rank, parts.spec->name),
        dropped_below_(static_cast<std::uint32_t>(std::ldexp(parts.spec->rate, 32))),
        scale_(static_cast<float>(1 / (1 - parts.spec->rate))) {}

  bool whole_batch() const override { return edge_->matrix; }

  void reserve(std::size_t groups) override {
    factors_.grow(edge_->features * kGroup * groups);
    words_.resize(std::max(words_.size(), edge_->features * kGroup * (edge_->matrix ? groups : 1)));
  }

  void forward(const Pass& pass, std::size_t group) override {
    if (!pass.training) return;
    const std::size_t count = extent(*edge_, pass);
    float* factors = factors_.data() + group * edge_->features * kGroup;
    float* values = edge_->value(group);
    // The batch's number in the upper half: no two batches share a part of the stream.
    random_.seek((pass.batch->number << 32) + group * edge_->features * kGroup);
    random_.fill(std::span(words_).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      factors[i] = words_[i] < dropped_below_ ? 0 : scale_;
      values[i] *= factors[i];
    }
  }

  void backward(const Pass& pass, std::size_t group) override {
    const float* factors = factors_.data() + group * edge_->features * kGroup;
    float* gradient = edge_->gradient(group);
    for (std::size_t i = 0; i < extent(*edge_, pass); ++i) gradient[i] *= factors[i];
  }

 private:
  Edge* edge_;
  RandomStream random_;
  std::uint32_t dropped_below_;
  float scale_;
  AlignedFloats factors_;
  std::vector<std::uint32_t> words_;
};

// Normalises every channel over batch and positions (Ioffe and Szegedy, 2015), with running statistics for evaluation unless it is to keep
// to those of the batch.
class BatchNormLayer final : public Layer {
 public:
  explicit BatchNormLayer(const LayerParts& parts)
      : parts_(parts),
        edge_(parts.out),
        channels_(static_cast<std::size_t>(parts.spec->input.channels)),
        positions_(parts.spec->input.size() / channels_),
        deviation_(channels_) {}

  bool whole_batch() const override { return true; }

  void reserve(std::size_t groups) override { normalised_.grow(edge_->features * kGroup * groups); }

  void forward(const Pass& pass, std::size_t /*group*/) override {
    for (std::size_t channel = 0; channel < channels_; ++channel) {
      double mean = 0;
      double variance = 0;
      if (pass.training || !keeps_running()) {
        measure(pass, channel, mean, variance);
        if (keeps_running()) update_running(pass, channel, mean, variance);
      } else {
        mean = parts_.weights.mean[channel];
        variance = parts_.weights.variance[channel];
      }
      const double inverse = 1 / std::sqrt(variance + kEpsilon);
      deviation_[channel] = static_cast<float>(inverse);
      const float weight = parts_.weights.weight[channel];
      const float bias = parts_.weights.bias[channel];
      for_rows(pass, channel, [&](std::size_t first, std::size_t rows, int /*used*/) {
        float* values = edge_->values + first;
        scale_and_shift(static_cast<float>(inverse), static_cast<float>(-mean * inverse), values, rows * kGroup);
        if (pass.training) std::copy_n(values, rows * kGroup, normalised_.data() + first);
        scale_and_shift(weight, bias, values, rows * kGroup);
      });
    }
  }

  void backward(const Pass& pass, std::size_t /*group*/) override {
    const double count = static_cast<double>(pass.samples() * positions_);
    for (std::size_t channel = 0; channel < channels_; ++channel) {
      double sum = 0;
      double product = 0;
      for_rows(pass, channel, [&](std::size_t first, std::size_t rows, int used) {
        sum += total(used, [&](float* lanes) { add_lanes(edge_->gradients + first, rows, lanes); });
        product += total(used, [&](float* lanes) { add_products(edge_->gradients + first, normalised_.data() + first, rows, lanes); });
      });
      parts_.weights.bias_gradient[channel] = static_cast<float>(sum);
      parts_.weights.weight_gradient[channel] = static_cast<float>(product);
      if (!parts_.input_gradient) continue;
      const float scale = parts_.weights.weight[channel] * deviation_[channel];
      for_rows(pass, channel, [&](std::size_t first, std::size_t rows, int used) {
        float* gradient = edge_->gradients + first;
        normalisation_gradient(scale, static_cast<float>(sum / count), static_cast<float>(product / count), normalised_.data() + first,
                               gradient, rows * kGroup);
        for (std::size_t row = 0; row < rows && used < kGroup; ++row)
          std::fill(gradient + row * kGroup + used, gradient + (row + 1) * kGroup, 0.0f);
      });
    }
  }

 private:
  static constexpr double kEpsilon = 1e-5;
  static constexpr double kMomentum = 0.1;

  bool keeps_running() const { return !parts_.spec->batch_statistics; }

  // Calls use(offset, rows, used) for all parts of the channel: rows of kGroup lanes, of which the first `used` have a sample.
  template <class Use>
  void for_rows(const Pass& pass, std::size_t channel, const Use& use) const {
    for (std::size_t group = 0; group < pass.groups(); ++group) {
      if (!edge_->matrix) {
        use((group * edge_->features + channel * positions_) * kGroup, positions_, pass.samples_in(group));
        continue;
      }
      for (std::size_t position = 0; position < positions_; ++position) {
        use((channel * positions_ + position) * pass.lanes() + group * kGroup, std::size_t{1}, pass.samples_in(group));
      }
    }
  }

  // What `add` puts into the lanes that are used.
  template <class Add>
  static double total(int used, const Add& add) {
    alignas(64) std::array<float, kGroup> lanes{};
    add(lanes.data());
    double sum = 0;
    for (int lane = 0; lane < used; ++lane) sum += lanes[static_cast<std::size_t>(lane)];
    return sum;
  }

  void measure(const Pass& pass, std::size_t channel, double& mean, double& variance) const {
    const double count = static_cast<double>(pass.samples() * positions_);
    double sum = 0;
    for_rows(pass, channel, [&](std::size_t first, std::size_t rows, int used) {
      sum += total(used, [&](float* lanes) { add_lanes(edge_->values + first, rows, lanes); });
    });
    mean = sum / count;
    double squares = 0;
    for_rows(pass, channel, [&](std::size_t first, std::size_t rows, int used) {
      squares += total(used, [&](float* lanes) { add_squares(edge_->values + first, rows, static_cast<float>(mean), lanes); });
    });
    variance = squares / count;
  }

  // The running variance is the unbiased one, as in other frameworks; a single number has none and leaves it alone.
  void update_running(const Pass& pass, std::size_t channel, double mean, double variance) {
    const double count = static_cast<double>(pass.samples() * positions_);
    float& running_mean = parts_.weights.mean[channel];
    float& running_variance = parts_.weights.variance[channel];
    running_mean = static_cast<float>((1 - kMomentum) * running_mean + kMomentum * mean);
    if (count < 2) return;
    running_variance = static_cast<float>((1 - kMomentum) * running_variance + kMomentum * variance * count / (count - 1));
  }

  LayerParts parts_;
  Edge* edge_;
  std::size_t channels_;
  std::size_t positions_;
  std::vector<float> deviation_;  // One over it, of the last batch.
  AlignedFloats normalised_;
};

}  // namespace

std::unique_ptr<Layer> make_activation(const LayerParts& parts) { return std::make_unique<ActivationLayer>(parts); }
std::unique_ptr<Layer> make_pooling(const LayerParts& parts) { return std::make_unique<PoolingLayer>(parts); }
std::unique_ptr<Layer> make_batch_norm(const LayerParts& parts) { return std::make_unique<BatchNormLayer>(parts); }
std::unique_ptr<Layer> make_dropout(const LayerParts& parts, std::uint64_t seed, std::uint32_t rank) {
  return std::make_unique<DropoutLayer>(parts, seed, rank);
}

}  // namespace starling::compute::native
