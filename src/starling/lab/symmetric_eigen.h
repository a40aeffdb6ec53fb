// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// All eigenvalues and eigenvectors of a symmetric matrix of up to a few thousand rows: Householder's reduction to three diagonals, then QL
// iterations with implicit shifts (Bowdler, Martin, Reinsch, Wilkinson, "The QR and QL algorithms for symmetric matrices", 1968; the
// procedures tred2 and tql2 of EISPACK). Some five n³ operations; the same bits in every run.
#pragma once

#include <vector>

#include "starling/lab/converge_matrix.h"

namespace starling::lab {

struct EigenPairs {
  std::vector<double> values{};  // Descending.
  SquareMatrix vectors{0};       // Row k is that of value k; rows are orthonormal.
};

// Errors are of the size of the rounding of the largest eigenvalue. Precondition (checked): the matrix is symmetric and finite.
EigenPairs symmetric_eigenpairs(const SquareMatrix& matrix);

}  // namespace starling::lab
