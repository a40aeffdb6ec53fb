// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Networks as a short text: layers separated by commas, each a name followed by its options.
//
//   conv 6 5x5 pad 2, relu, maxpool 2, conv 16 5x5, relu, maxpool 2, dense 120, relu, dense 84, relu, dense 10
//
// docs/models.md lists the layers. Shapes are worked out and checked when the text is read; no backend is needed for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "starling/compute/model.h"
#include "starling/data/samples.h"
#include "starling/params/layout.h"

namespace starling::compute {

enum class LayerKind { dense, conv, maxpool, avgpool, relu, tanh, sigmoid, batchnorm, dropout };
enum class LossKind { cross_entropy, mse };

struct LayerSpec {
  LayerKind kind = LayerKind::dense;
  std::string name{};  // "conv2": the kind and a number per kind. "norm1" for batch norm.
  int outputs = 0;     // dense, conv.
  int kernel_height = 0;
  int kernel_width = 0;
  int stride = 1;
  int pad = 0;
  bool ceil = false;              // Pooling: a last window that is only partly inside counts.
  bool bias = true;               // dense, conv.
  double rate = 0;                // dropout: the probability of being dropped.
  bool batch_statistics = false;  // batchnorm: those of the batch also when evaluating; no running ones.
  data::Shape input{};
  data::Shape output{};
};

struct Network {
  std::string text{};
  std::vector<LayerSpec> layers{};
  LossKind loss = LossKind::cross_entropy;

  // Forward, one sample, two per multiply-add; conv and dense only.
  double operations_per_sample() const;
};

// The slices of the weights, in the order of layers: weight and bias (of batch norm: scale and shift), then all running statistics (batch
// norm that keeps to those of the batch has none).
params::Layout layout_of(const Network& network);

// The first weights of a network, from the seed alone: uniform in ±1/√fan-in for dense and conv, weights and bias alike; batch norm starts
// at scale 1, shift 0, mean 0, variance 1.
void initialise(const Network& network, std::uint64_t seed, std::span<float> weights);

// A name (lenet5, mlp:784-1000-10, softmax, cifar10-full, quadratic) or a text. Throws UserError, pointing into the text, for what cannot
// be read, does not fit the input, or does not end in as many outputs as the problem has.
Network parse_network(const std::string& model, const Problem& problem);

// The text of the same network with so many units in its hidden layers, which are all dense ones but the last. Precondition (checked): it
// has no convolutions, and there is a positive width for each hidden one.
std::string narrow(const Network& network, std::span<const int> widths);

// Whether parse_network would read it as a name or a text; it may still be a wrong one.
bool is_network(const std::string& model);

// The text that a name stands for; a text stands for itself.
std::string network_text(const std::string& model, const Problem& problem);

}  // namespace starling::compute
