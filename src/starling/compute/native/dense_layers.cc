// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "starling/base/aligned_floats.h"
#include "starling/compute/native/blas.h"
#include "starling/compute/native/convolution_kernels.h"
#include "starling/compute/native/dense_kernels.h"
#include "starling/compute/native/layer.h"

namespace starling::compute::native {
namespace {

// Weights that stay in the second-level cache may be fetched for every group; with more of them, all groups go through the layer at once.
constexpr std::size_t kCachedWeights = 100'000;

// The weight gradient is formed once for all groups, from inputs and output gradients put aside, so that each weight is touched once per
// batch.
class DenseLayer final : public Layer {
 public:
  explicit DenseLayer(const LayerParts& parts)
      : parts_(parts),
        inputs_(static_cast<int>(parts.spec->input.size())),
        outputs_(parts.spec->outputs),
        whole_batch_(parts.spec->input.size() * static_cast<std::size_t>(outputs_) > kCachedWeights) {}

  bool whole_batch() const override { return whole_batch_; }

  void reserve(std::size_t groups) override {
    tiles_.grow(tiles_size(inputs_, groups));
    out_gradients_.grow(groups * group_size());
  }

  void forward(const Pass& pass, std::size_t group) override {
    dense_forward(shape(pass, parts_.in->value_step, parts_.out->value_step), parts_.in->value(group), parts_.weights.weight,
                  parts_.weights.bias, parts_.out->value(group));
    if (!pass.training) return;
    for (std::size_t i = group; i < group + groups(pass); ++i) {
      turn_into_tiles(inputs_, parts_.in->value(i), i, pass.groups(), tiles_.data());
    }
  }

  void backward(const Pass& pass, std::size_t group) override {
    const float* gradient = parts_.out->gradient(group);
    std::copy_n(gradient, groups(pass) * group_size(), out_gradients_.data() + group * group_size());
    if (!parts_.input_gradient) return;
    dense_input_gradient(shape(pass, parts_.in->gradient_step, parts_.out->gradient_step), gradient, parts_.weights.weight,
                         parts_.in->gradient(group));
  }

  void finish(const Pass& pass) override {
    dense_weight_gradient(inputs_, outputs_, pass.groups(), tiles_.data(), out_gradients_.data(), parts_.weights.weight_gradient);
    if (parts_.weights.bias_gradient == nullptr) return;
    std::fill_n(parts_.weights.bias_gradient, outputs_, 0.0f);
    for (std::size_t group = 0; group < pass.groups(); ++group) {
      add_plane_sums(out_gradients_.data() + group * group_size(), outputs_, 1, parts_.weights.bias_gradient);
    }
  }

 private:
  std::size_t groups(const Pass& pass) const { return whole_batch_ ? pass.groups() : 1; }
  std::size_t group_size() const { return static_cast<std::size_t>(outputs_) * kGroup; }
  DenseShape shape(const Pass& pass, std::size_t in_step, std::size_t out_step) const {
    return {.inputs = inputs_, .outputs = outputs_, .groups = groups(pass), .in_step = in_step, .out_step = out_step};
  }

  LayerParts parts_;
  int inputs_;
  int outputs_;
  bool whole_batch_;
  AlignedFloats tiles_;
  AlignedFloats out_gradients_;
};

class MatrixDenseLayer final : public Layer {
 public:
  explicit MatrixDenseLayer(const LayerParts& parts)
      : parts_(parts), inputs_(parts.spec->input.size()), outputs_(static_cast<std::size_t>(parts.spec->outputs)) {}

  bool whole_batch() const override { return true; }

  void forward(const Pass& pass, std::size_t /*group*/) override {
    const std::size_t lanes = pass.lanes();
    for (std::size_t row = 0; row < outputs_; ++row) {
      std::fill_n(parts_.out->values + row * lanes, lanes, parts_.weights.bias == nullptr ? 0.0f : parts_.weights.bias[row]);
    }
    multiply(outputs_, lanes, inputs_, {parts_.weights.weight, inputs_}, {parts_.in->values, lanes}, 1, parts_.out->values, lanes);
  }

  void backward(const Pass& pass, std::size_t /*group*/) override {
    const std::size_t lanes = pass.lanes();
    const float* gradient = parts_.out->gradients;
    multiply(outputs_, inputs_, lanes, {gradient, lanes}, {parts_.in->values, lanes, Turn::yes}, 0, parts_.weights.weight_gradient,
             inputs_);
    if (parts_.weights.bias_gradient != nullptr) {
      std::fill_n(parts_.weights.bias_gradient, outputs_, 0.0f);
      add_row_sums(gradient, outputs_, lanes, parts_.weights.bias_gradient);
    }
    if (!parts_.input_gradient) return;
    multiply(inputs_, lanes, outputs_, {parts_.weights.weight, inputs_, Turn::yes}, {gradient, lanes}, 0, parts_.in->gradients, lanes);
  }

 private:
  // A row of a matrix is a plane of lanes / kGroup positions to the kernel that adds up planes.
  static void add_row_sums(const float* rows, std::size_t count, std::size_t lanes, float* to) {
    add_plane_sums(rows, static_cast<int>(count), static_cast<int>(lanes / kGroup), to);
  }

  LayerParts parts_;
  std::size_t inputs_;
  std::size_t outputs_;
};

// grouped [group][feature][kGroup] ↔ matrix [feature][lanes], one group at a time.
class ConversionLayer final : public Layer {
 public:
  ConversionLayer(Edge* in, Edge* out) : in_(in), out_(out) {}

  void forward(const Pass& pass, std::size_t group) override {
    if (in_->matrix) {
      take(in_->values, pass.lanes(), group, out_->value(group));
    } else {
      put(in_->value(group), pass.lanes(), group, out_->values);
    }
  }

  void backward(const Pass& pass, std::size_t group) override {
    if (in_->matrix) {
      put(out_->gradient(group), pass.lanes(), group, in_->gradients);
    } else {
      take(out_->gradients, pass.lanes(), group, in_->gradient(group));
    }
  }

 private:
  void take(const float* matrix, std::size_t lanes, std::size_t group, float* to) const {
    for (std::size_t feature = 0; feature < in_->features; ++feature) {
      std::memcpy(to + feature * kGroup, matrix + feature * lanes + group * kGroup, kGroup * sizeof(float));
    }
  }
  void put(const float* from, std::size_t lanes, std::size_t group, float* matrix) const {
    for (std::size_t feature = 0; feature < in_->features; ++feature) {
      std::memcpy(matrix + feature * lanes + group * kGroup, from + feature * kGroup, kGroup * sizeof(float));
    }
  }

  Edge* in_;
  Edge* out_;
};

class CopyLayer final : public Layer {
 public:
  CopyLayer(Edge* in, Edge* out) : in_(in), out_(out) {}

  bool whole_batch() const override { return in_->matrix; }
  void forward(const Pass& pass, std::size_t group) override { std::copy_n(in_->value(group), size(pass), out_->value(group)); }
  void backward(const Pass& pass, std::size_t group) override { std::copy_n(out_->gradient(group), size(pass), in_->gradient(group)); }

 private:
  std::size_t size(const Pass& pass) const { return in_->features * (in_->matrix ? pass.lanes() : kGroup); }

  Edge* in_;
  Edge* out_;
};

}  // namespace

std::unique_ptr<Layer> make_copy(Edge* in, Edge* out) { return std::make_unique<CopyLayer>(in, out); }
std::unique_ptr<Layer> make_dense(const LayerParts& parts) { return std::make_unique<DenseLayer>(parts); }
std::unique_ptr<Layer> make_matrix_dense(const LayerParts& parts) { return std::make_unique<MatrixDenseLayer>(parts); }
std::unique_ptr<Layer> make_conversion(Edge* in, Edge* out) { return std::make_unique<ConversionLayer>(in, out); }

}  // namespace starling::compute::native
