// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A torch::nn::Module of your own as a replica. This header includes LibTorch; link starling::torch.
//
//   struct Net : torch::nn::Module {
//     torch::Tensor forward(torch::Tensor x) { return dense->forward(x.flatten(1)); }
//     torch::nn::Linear dense{register_module("dense", torch::nn::Linear(784, 10))};
//   };
//   std::unique_ptr<Replica> replica = make_module_replica(std::make_shared<Net>(), Problem::of(data.train), seed, rank);
//
// The input is [samples, channels, height, width]; the output must be [samples, problem.outputs]: scores for cross-entropy where answers
// are classes, otherwise numbers for the mean squared error. The weights are those the module has when it is handed over, so give all ranks
// the same (torch::manual_seed before making it). From then on its parameters and buffers live in the replica's flat vectors, under the
// names the module has for them; parameters that need no gradient count as buffers.
#pragma once

#include <ATen/core/ivalue.h>  // First: otherwise clang rejects the others of LibTorch 1.13 as C++20.
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "starling/compute/model.h"
#include "starling/compute/replica.h"

namespace starling::compute {

using TorchForward = std::function<torch::Tensor(const torch::Tensor& inputs)>;

// The replica shares the module, and is the only one to use it from then on. `forward` computes the module's output. Throws UserError if
// the module does not take the inputs of the problem or give its outputs, or has parameters that are not float32 on the CPU.
std::unique_ptr<Replica> make_module_replica(const std::shared_ptr<torch::nn::Module>& module, TorchForward forward, const Problem& problem,
                                             std::uint64_t seed, std::uint32_t rank, const std::string& description = "module");

// The same for a module with a forward(torch::Tensor) of its own.
template <class Module>
std::unique_ptr<Replica> make_module_replica(const std::shared_ptr<Module>& module, const Problem& problem, std::uint64_t seed,
                                             std::uint32_t rank) {
  Module* raw = module.get();
  return make_module_replica(
      module, [raw](const torch::Tensor& inputs) { return raw->forward(inputs); }, problem, seed, rank);
}

}  // namespace starling::compute
