// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Data sets that are made, not read, and whose answer is known: what a method finds can be compared with what there is to find. They
// depend on their options alone, bit for bit, on every machine. docs/data.md says how each is made and why its answer is exact.
//
//   Dataset data = make_quadratic({.dimension = 20, .condition = 1000});
#pragma once

#include <cstdint>

#include "starling/data/dataset.h"

namespace starling::data {

// Gaussian clusters. known_answer: the centres, classes × dimension.
struct BlobsOptions {
  std::uint64_t samples = 1000;
  std::uint64_t classes = 3;
  std::uint64_t dimension = 2;
  double spread = 0.3;  // Deviation of each coordinate around its centre; the centres themselves have deviation 1.
  std::uint64_t seed = 1;
};
Dataset make_blobs(const BlobsOptions& options);

// Least squares with one output, for a linear model without bias. The Hessian of the mean squared error over the whole training set is
// diagonal, with eigenvalues spaced evenly in their logarithms from 1 down to 1 / condition, and the optimum is known_answer.
// Throws UserError unless samples is a multiple of twice the smallest power of two that is not below dimension.
struct QuadraticOptions {
  std::uint64_t dimension = 16;
  double condition = 100;
  double noise = 0.1;  // Deviation of the targets around what known_answer predicts.
  std::uint64_t samples = 1024;
  std::uint64_t seed = 1;
};
Dataset make_quadratic(const QuadraticOptions& options);

// Two classes that no hyperplane separates. known_answer is the weight vector w at which the logistic loss over the whole training set,
// of class 1 with probability 1 / (1 + exp(-w·x)), is least.
// Throws UserError unless samples is a multiple of 4, and at least 4 × dimension.
struct LogisticOptions {
  std::uint64_t dimension = 10;
  std::uint64_t samples = 1000;
  std::uint64_t seed = 1;
};
Dataset make_logistic(const LogisticOptions& options);

}  // namespace starling::data
