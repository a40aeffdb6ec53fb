// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "starling/base/aligned_floats.h"
#include "starling/compute/native/convolution_kernels.h"
#include "starling/compute/native/layer.h"

namespace starling::compute::native {
namespace {

class ConvolutionLayer final : public Layer {
 public:
  explicit ConvolutionLayer(const LayerParts& parts)
      : parts_(parts),
        geometry_{.in_channels = parts.spec->input.channels,
                  .in_height = parts.spec->input.height,
                  .in_width = parts.spec->input.width,
                  .out_channels = parts.spec->output.channels,
                  .out_height = parts.spec->output.height,
                  .out_width = parts.spec->output.width,
                  .kernel_height = parts.spec->kernel_height,
                  .kernel_width = parts.spec->kernel_width,
                  .stride = parts.spec->stride,
                  .pad = parts.spec->pad},
        forward_weights_(geometry_.weight_count()),
        lane_sums_(geometry_.weight_count() * kLaneSums) {
    if (parts.input_gradient) backward_weights_.grow(geometry_.weight_count());
  }

  void reserve(std::size_t groups) override {
    if (geometry_.pad == 0) return;
    // The borders are zero from the start and never written. Groups that take turns in the input take turns here.
    padded_step_ = parts_.in->value_step == 0 ? 0 : geometry_.padded_size() * kGroup;
    padded_.grow(padded_step_ == 0 ? geometry_.padded_size() * kGroup : padded_step_ * groups);
  }

  void begin(const Pass& pass) override {
    pack_for_forward(geometry_, parts_.weights.weight, forward_weights_.data());
    if (!pass.training) return;
    if (parts_.input_gradient) pack_for_input_gradient(geometry_, parts_.weights.weight, backward_weights_.data());
    std::ranges::fill(lane_sums_.span(), 0.0f);
    if (parts_.weights.bias_gradient != nullptr) std::fill_n(parts_.weights.bias_gradient, geometry_.out_channels, 0.0f);
  }

  void forward(const Pass& /*pass*/, std::size_t group) override {
    if (geometry_.pad > 0) pad_planes(geometry_, parts_.in->value(group), padded_.data() + group * padded_step_);
    convolution_forward(geometry_, padded(group), forward_weights_.data(), parts_.weights.bias, parts_.out->value(group));
  }

  void backward(const Pass& /*pass*/, std::size_t group) override {
    const float* gradient = parts_.out->gradient(group);
    convolution_weight_gradient(geometry_, padded(group), gradient, lane_sums_.data());
    if (parts_.weights.bias_gradient != nullptr) {
      add_plane_sums(gradient, geometry_.out_channels, geometry_.out_height * geometry_.out_width, parts_.weights.bias_gradient);
    }
    if (parts_.input_gradient) convolution_input_gradient(geometry_, gradient, backward_weights_.data(), parts_.in->gradient(group));
  }

  void finish(const Pass& /*pass*/) override {
    reduce_lane_sums(lane_sums_.data(), geometry_.weight_count(), parts_.weights.weight_gradient);
  }

 private:
  const float* padded(std::size_t group) const {
    return geometry_.pad > 0 ? padded_.data() + group * padded_step_ : parts_.in->value(group);
  }

  LayerParts parts_;
  ConvolutionGeometry geometry_;
  AlignedFloats forward_weights_;
  AlignedFloats backward_weights_;
  AlignedFloats lane_sums_;
  AlignedFloats padded_;
  std::size_t padded_step_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_convolution(const LayerParts& parts) { return std::make_unique<ConvolutionLayer>(parts); }

}  // namespace starling::compute::native
