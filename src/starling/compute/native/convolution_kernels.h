// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Direct convolution of one group of samples. Why not im2col and gemm: with few channels the matrix is thin, and gemm spends its time
// packing; samples in the lanes make every multiplication a full vector one whatever the shape.
//
// Tensors of a group: [channel][row][column][kGroup]. Inputs are padded (see pad_planes), outputs are not. Pointers need no alignment
// beyond that of a float.
#pragma once

#include <cstddef>

#include "starling/compute/native/group.h"

namespace starling::compute::native {

struct ConvolutionGeometry {
  int in_channels = 0;
  int in_height = 0;  // Without padding.
  int in_width = 0;
  int out_channels = 0;
  int out_height = 0;
  int out_width = 0;
  int kernel_height = 0;
  int kernel_width = 0;
  int stride = 1;
  int pad = 0;

  int padded_height() const { return in_height + 2 * pad; }
  int padded_width() const { return in_width + 2 * pad; }
  std::size_t padded_size() const {
    return static_cast<std::size_t>(in_channels) * static_cast<std::size_t>(padded_height()) * static_cast<std::size_t>(padded_width());
  }
  int taps() const { return kernel_height * kernel_width; }
  std::size_t weight_count() const {
    return static_cast<std::size_t>(out_channels) * static_cast<std::size_t>(in_channels) * static_cast<std::size_t>(taps());
  }
};

// Copies planes into the middle of padded ones, whose borders are zero already and stay so.
void pad_planes(const ConvolutionGeometry& geometry, const float* planes, float* padded);

// The weights [out][in][row][column] in the order in which forward and input_gradient read them: blocks of outputs (or of inputs), the
// channels of a block innermost. Each has weight_count() floats.
void pack_for_forward(const ConvolutionGeometry& geometry, const float* weights, float* packed);
void pack_for_input_gradient(const ConvolutionGeometry& geometry, const float* weights, float* packed);

// out = bias + packed * in. bias may be null.
void convolution_forward(const ConvolutionGeometry& geometry, const float* padded, const float* packed, const float* bias, float* out);

// The gradient of the inputs, not padded; overwritten.
void convolution_input_gradient(const ConvolutionGeometry& geometry, const float* out_gradient, const float* packed, float* in_gradient);

// Adds the gradient of the weights, lane by lane, to sums: kLaneSums partial sums for every weight. reduce_lane_sums makes them one.
inline constexpr int kLaneSums = 8;
void convolution_weight_gradient(const ConvolutionGeometry& geometry, const float* padded, const float* out_gradient, float* sums);
void reduce_lane_sums(const float* sums, std::size_t count, float* to);

// Adds to bias_gradient the sums of the planes.
void add_plane_sums(const float* planes, int channels, int plane, float* bias_gradient);

}  // namespace starling::compute::native
