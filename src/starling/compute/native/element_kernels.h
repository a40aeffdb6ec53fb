// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Layers without weights, and what surrounds them: activations, pooling, normalisation, the loss. None of them cares how many samples lie
// in the lanes, except that pooling works on one group, [channel][row][column][kGroup].
#pragma once

#include <cstddef>
#include <cstdint>

namespace starling::compute::native {

enum class Activation { relu, tanh, sigmoid };

// In place. NaN stays NaN, so that a diverged run shows it.
void activate(Activation activation, float* values, std::size_t count);

// gradient ×= derivative, as a function of what activate() left.
void activation_gradient(Activation activation, const float* outputs, float* gradient, std::size_t count);

struct PoolGeometry {
  int channels = 0;
  int in_height = 0;
  int in_width = 0;
  int out_height = 0;
  int out_width = 0;
  int kernel = 0;
  int stride = 0;

  // Windows that share inputs need their gradients added up.
  bool overlapping() const { return stride < kernel; }
};

// chosen gets, for every output, which input of its window was the largest (the first of equals): row × kernel + column.
void max_pool(const PoolGeometry& geometry, const float* in, float* out, std::int32_t* chosen);
void max_pool_gradient(const PoolGeometry& geometry, const float* out_gradient, const std::int32_t* chosen, float* in_gradient);

// The mean of the inputs of a window that exist.
void average_pool(const PoolGeometry& geometry, const float* in, float* out);
void average_pool_gradient(const PoolGeometry& geometry, const float* out_gradient, float* in_gradient);

// values = values × scale + shift.
void scale_and_shift(float scale, float shift, float* values, std::size_t count);

// gradient = scale × (gradient - mean_gradient - normalised × mean_product)
void normalisation_gradient(float scale, float mean_gradient, float mean_product, const float* normalised, float* gradient,
                            std::size_t count);

// Sums over rows of kGroup lanes, one for each lane: of values, of their squared distances from a mean, of products with other values.
void add_lanes(const float* values, std::size_t rows, float* sums);
void add_squares(const float* values, std::size_t rows, float mean, float* sums);
void add_products(const float* values, const float* others, std::size_t rows, float* sums);

// Softmax cross-entropy of one group: logits [class][kGroup], labels of the first `samples` lanes. losses[lane] gets the loss of a sample;
// gradient, where not null, weight × (softmax - answer), and 0 for lanes without a sample.
void softmax_cross_entropy(int classes, const float* logits, const std::int32_t* labels, int samples, float weight, float* losses,
                           float* gradient);

}  // namespace starling::compute::native
