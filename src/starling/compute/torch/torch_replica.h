// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Replicas computed by LibTorch, for those who link starling::torch. Nothing here needs LibTorch's headers; to make a replica of a
// torch::nn::Module of your own, see torch_module.h. Programs that must start without LibTorch use torch_plugin.h instead.
//
//   std::unique_ptr<Replica> replica = make_torch_replica("lenet5", Problem::of(data.train), seed, rank);
//
// What holds for all of them:
// - Parameters, gradients and buffers are views into the flat vectors: nothing is copied between them and LibTorch. Buffers that are not
//   float32 (the num_batches_tracked of batch norm) stay outside; they matter only to batch norm with momentum None, whose running averages
//   a checkpoint therefore does not continue exactly.
// - LibTorch is set to one thread and to deterministic algorithms, for the whole process, when the first replica is made.
// - LibTorch allocates in every step, so the promise of Replica not to does not hold.
// - Modules that draw random numbers (dropout) do so from LibTorch's one generator, seeded for every batch from (seed, rank, number of the
//   batch): the results are those of the contract, but the forward passes of such replicas take turns; nobody else may draw from
//   that generator at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "starling/compute/model.h"
#include "starling/compute/replica.h"

namespace starling::compute {

// One layer of a feed-forward network. Only what its kind needs is looked at.
struct Step {
  enum class Kind { dense, conv, maxpool, avgpool, relu, tanh, sigmoid, batchnorm, dropout };

  Kind kind = Kind::relu;
  int outputs = 0;  // dense; conv: channels.
  int kernel_height = 1;
  int kernel_width = 1;
  int stride = 1;     // conv, pools.
  int pad = 0;        // conv, pools; average pooling divides by the elements inside the image.
  bool ceil = false;  // Pools: a last window that hangs over counts.
  double rate = 0.5;  // dropout: the probability of a zero.
  bool bias = true;   // dense, conv.
};

// `model` is a name (lenet5, mlp:784-1000-1000-10, softmax, cifar10-full, quadratic) or a TorchScript file. Named models start with the
// weights that the native engine gives them; a file keeps its own. Throws UserError for a file that is missing, damaged or of another kind,
// and for a model that does not fit the problem.
std::unique_ptr<Replica> make_torch_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank);

// The same for layers one by one; slices are called conv1.weight, conv1.bias, dense1.weight, norm1.mean and so on, numbered per kind. Every
// weight and bias of dense and conv starts uniform in ±1/√(inputs per output), drawn slice by slice from RandomStream(seed, 0, "init").
// Throws UserError where a layer does not fit its input or the last one the problem.
std::unique_ptr<Replica> make_torch_replica(const std::vector<Step>& steps, const Problem& problem, std::uint64_t seed, std::uint32_t rank,
                                            const std::string& description);

// The layers of a named model; empty if there is none of that name.
std::vector<Step> named_steps(const std::string& name, const Problem& problem);

}  // namespace starling::compute
