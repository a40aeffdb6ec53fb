// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The parts a native network is built from.
//
// A batch is cut into groups of kGroup samples. Between two layers lies an Edge: the activations of the batch and their gradients, in one
// of two forms. Grouped, [group][feature][kGroup], suits the direct kernels: a group passes through many layers while it is in the cache.
// As a matrix, [feature][all samples], it suits gemm. Lanes without a sample hold arbitrary numbers going forward and zeros coming back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "starling/compute/native/group.h"
#include "starling/compute/network.h"
#include "starling/data/samples.h"

namespace starling::compute::native {

struct Edge {
  std::size_t features = 0;
  bool matrix = false;
  float* values = nullptr;
  float* gradients = nullptr;
  // Floats from one group to the next: features × kGroup, or 0 where all groups take turns in the same memory.
  std::size_t value_step = 0;
  std::size_t gradient_step = 0;

  float* value(std::size_t group) const { return values + group * value_step; }
  float* gradient(std::size_t group) const { return gradients + group * gradient_step; }
};

// What the layers need to know of the batch that is passing.
struct Pass {
  const data::Batch* batch = nullptr;
  bool training = false;
  std::span<std::int32_t> predictions{};  // Empty, or one per sample.

  std::size_t samples() const { return batch->size(); }
  std::size_t groups() const { return (samples() + kGroup - 1) / kGroup; }
  std::size_t lanes() const { return groups() * kGroup; }
  int samples_in(std::size_t group) const { return static_cast<int>(std::min<std::size_t>(kGroup, samples() - group * kGroup)); }
};

// Where a layer's part of the flat vectors is. Null where it has none.
struct Weights {
  float* weight = nullptr;
  float* bias = nullptr;
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;
  float* mean = nullptr;      // batch norm: running statistics.
  float* variance = nullptr;  //
};

// A layer is called, for every batch: begin, then forward and backward for each group in order (or once, with group 0, if it takes the
// whole batch at a time), then finish. Evaluating, only begin and forward.
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  virtual bool whole_batch() const { return false; }
  // Makes room for batches of so many groups. The only place where a layer may allocate.
  virtual void reserve(std::size_t groups) { static_cast<void>(groups); }
  virtual void begin(const Pass& pass) { static_cast<void>(pass); }
  virtual void forward(const Pass& pass, std::size_t group) = 0;
  virtual void backward(const Pass& pass, std::size_t group) = 0;
  virtual void finish(const Pass& pass) { static_cast<void>(pass); }
};

// What every layer is made from. in and out may be the same edge: the layer works in place.
struct LayerParts {
  const LayerSpec* spec = nullptr;
  Edge* in = nullptr;
  Edge* out = nullptr;
  Weights weights{};
  bool input_gradient = true;  // Whether anybody before this layer has weights.
};

std::unique_ptr<Layer> make_convolution(const LayerParts& parts);
std::unique_ptr<Layer> make_dense(const LayerParts& parts);         // Grouped.
std::unique_ptr<Layer> make_matrix_dense(const LayerParts& parts);  // As a matrix, by gemm.
std::unique_ptr<Layer> make_activation(const LayerParts& parts);    // In place.
std::unique_ptr<Layer> make_pooling(const LayerParts& parts);
std::unique_ptr<Layer> make_batch_norm(const LayerParts& parts);  // In place.
// In place; what it drops is a function of seed, rank, its name and the number of the batch.
std::unique_ptr<Layer> make_dropout(const LayerParts& parts, std::uint64_t seed, std::uint32_t rank);
// From one form of an edge to the other.
std::unique_ptr<Layer> make_conversion(Edge* in, Edge* out);
// To a second edge of the same form.
std::unique_ptr<Layer> make_copy(Edge* in, Edge* out);
// The standardised inputs of the batch.
std::unique_ptr<Layer> make_input(const data::Shape& shape, Edge* out);

// The last layer: forward computes the losses, and when training the gradient of their mean.
class LossLayer : public Layer {
 public:
  virtual double loss_sum() const = 0;  // Over the samples of the batch.
  virtual std::size_t correct() const = 0;
};
std::unique_ptr<LossLayer> make_loss(LossKind kind, int outputs, Edge* in);

}  // namespace starling::compute::native
