// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// From the name or text of a model to a replica.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "starling/compute/replica.h"
#include "starling/data/samples.h"

namespace starling::compute {

// What a model is fitted to.
struct Problem {
  data::Shape input{};
  int outputs = 0;     // Classes, or numbers to predict.
  bool labels = true;  // Answers are classes: cross-entropy unless the model says otherwise.

  static Problem of(const data::Samples& samples) {
    return {.input = samples.shape, .outputs = samples.answer_size(), .labels = samples.has_labels()};
  }
};

// A replica with its first weights, which depend on model, problem and seed only: all ranks start equal. `rank` separates what replicas
// draw later (dropout). `model` is
//   a name              lenet5, mlp:784-1000-1000-10, softmax, cifar10-full, quadratic
//   a text              "conv 6 5x5 pad 2, relu, maxpool 2, dense 10" (see docs/models.md)
//   torch:FILE          a TorchScript file; torch:NAME one of the names above, built from LibTorch's modules
// Throws UserError for a model that does not exist, does not fit the problem, or needs a component that was not built.
std::unique_ptr<Replica> make_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank);

// The named models, for help and hints.
std::vector<std::string> model_names();

}  // namespace starling::compute
