// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Fully connected layers on groups of samples. Inputs and outputs of a group are [feature][kGroup], weights [output][input]. Very large
// layers go to gemm (blas.h).
#pragma once

#include <cstddef>

#include "starling/compute/native/group.h"

namespace starling::compute::native {

struct DenseShape {
  int inputs = 0;
  int outputs = 0;
  std::size_t groups = 1;    // That are computed at once.
  std::size_t in_step = 0;   // Floats from the inputs of one group to those of the next,
  std::size_t out_step = 0;  // and likewise for the outputs.
};

// out = bias + weights × in. bias may be null.
void dense_forward(const DenseShape& shape, const float* in, const float* weights, const float* bias, float* out);

// in_gradient = transposed weights × out_gradient.
void dense_input_gradient(const DenseShape& shape, const float* out_gradient, const float* weights, float* in_gradient);

// The inputs of a group, turned so that the features of a sample lie side by side, in tiles of kGroup features:
// tiles[feature / kGroup][group][sample][feature % kGroup]. There is room for `groups` groups; features beyond the last are zero.
void turn_into_tiles(int inputs, const float* in, std::size_t group, std::size_t groups, float* tiles);
inline std::size_t tiles_size(int inputs, std::size_t groups) {
  return round_up(static_cast<std::size_t>(inputs), kGroup) * groups * kGroup;
}

// gradient[output][input] = the sum over all samples of out_gradients × inputs. out_gradients are [group][output][kGroup].
void dense_weight_gradient(int inputs, int outputs, std::size_t groups, const float* tiles, const float* out_gradients, float* gradient);

}  // namespace starling::compute::native
