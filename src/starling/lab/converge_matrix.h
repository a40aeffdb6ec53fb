// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Small dense symmetric matrices in doubles, for the convergence laboratory: a few hundred rows, exact to rounding, the same bits on every
// machine. Not for anything that must be fast.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace starling::lab {

struct SquareMatrix {
  explicit SquareMatrix(std::size_t rows) : order(rows), values(rows * rows, 0.0) {}

  double& at(std::size_t row, std::size_t column) { return values[row * order + column]; }
  double at(std::size_t row, std::size_t column) const { return values[row * order + column]; }

  std::size_t order = 0;
  std::vector<double> values;  // Row by row.
};

// All eigenvalues of a symmetric matrix, ascending, by cyclic Jacobi rotations.
std::vector<double> symmetric_eigenvalues(SquareMatrix matrix);

// Solves matrix · x = right by Cholesky's factors, and puts x into `right`. Throws BrokenInvariant unless the matrix is positive definite.
void solve_positive_definite(SquareMatrix matrix, std::span<double> right);

}  // namespace starling::lab
