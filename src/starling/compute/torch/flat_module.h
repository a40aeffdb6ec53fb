// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The one class behind all replicas of LibTorch: a bag of tensors and a function. Internal to compute/torch; includes LibTorch.
#pragma once

#include <ATen/core/ivalue.h>  // First: otherwise clang rejects the others of LibTorch 1.13 as C++20.
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "starling/compute/model.h"
#include "starling/compute/network.h"
#include "starling/compute/replica.h"
#include "starling/compute/torch/torch_module.h"

namespace starling::compute {

struct NamedTensor {
  std::string name{};
  torch::Tensor tensor{};
};

// What is to become a replica. The functions keep alive what they need.
struct FlatModule {
  std::vector<NamedTensor> parameters{};  // As the module lists them: undefined ones and repetitions are dropped.
  std::vector<NamedTensor> buffers{};
  TorchForward forward{};
  std::function<void(bool)> set_training{};
  std::string description{};
  std::optional<LossKind> loss{};  // Without it, cross-entropy where answers are classes and the mean squared error where they are numbers.
};

// Moves the tensors into flat vectors, and tries the module on two samples. Throws UserError as make_module_replica does.
std::unique_ptr<Replica> make_flat_replica(FlatModule module, const Problem& problem, std::uint64_t seed, std::uint32_t rank);

// One thread, deterministic algorithms, no rewriting of TorchScript between one call and the next. Idempotent.
void configure_torch();

// LibTorch has one generator for all threads. Who draws from it holds this meanwhile: a forward pass with dropout from the seeding on, and
// the making of modules, which fill their weights at random.
std::mutex& generator_turn();

}  // namespace starling::compute
