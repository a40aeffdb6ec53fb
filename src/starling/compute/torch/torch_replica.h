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

#include "starling/compute/model.h"
#include "starling/compute/replica.h"

namespace starling::compute {

// `model` is a TorchScript file, or a name or text as native networks have (see network.h). Names and texts start with the weights that the
// native engine gives them; a file keeps its own. Throws UserError for a file that is missing, damaged or of another kind, and for a model
// that does not fit the problem.
std::unique_ptr<Replica> make_torch_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank);

}  // namespace starling::compute
