// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Small fully connected layers, one group of samples at a time: weights that stay in the second-level cache. Large ones go to gemm
// (blas.h).
//
// Inputs and outputs of a group are [feature][kGroup], weights [output][input].
#pragma once

#include <cstddef>

#include "starling/compute/native/group.h"

namespace starling::compute::native {

// out = bias + weights × in. bias may be null.
void dense_forward(int inputs, int outputs, const float* in, const float* weights, const float* bias, float* out);

// in_gradient = transposed weights × out_gradient.
void dense_input_gradient(int inputs, int outputs, const float* out_gradient, const float* weights, float* in_gradient);

// The inputs of a group, turned so that the features of a sample lie side by side, in tiles of kGroup features:
// tiles[feature / kGroup][group][sample][feature % kGroup]. There is room for `groups` groups; features beyond the last are zero.
void turn_into_tiles(int inputs, const float* in, std::size_t group, std::size_t groups, float* tiles);
inline std::size_t tiles_size(int inputs, std::size_t groups) {
  return round_up(static_cast<std::size_t>(inputs), kGroup) * groups * kGroup;
}

// gradient[output][input] = the sum over all samples of out_gradients × inputs. out_gradients are [group][output][kGroup].
void dense_weight_gradient(int inputs, int outputs, std::size_t groups, const float* tiles, const float* out_gradients, float* gradient);

}  // namespace starling::compute::native
