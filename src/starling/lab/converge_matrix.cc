// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_matrix.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

double off_diagonal_square(const SquareMatrix& matrix) {
  double sum = 0;
  for (std::size_t i = 0; i < matrix.order; ++i) {
    for (std::size_t j = 0; j < i; ++j) sum += matrix.at(i, j) * matrix.at(i, j);
  }
  return sum;
}

// The rotation in the plane (p, q) that makes the element there zero.
void rotate(SquareMatrix& matrix, std::size_t p, std::size_t q) {
  const double element = matrix.at(p, q);
  if (element == 0) return;
  const double theta = (matrix.at(q, q) - matrix.at(p, p)) / (2 * element);
  const double tangent = (theta >= 0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double cosine = 1 / std::sqrt(tangent * tangent + 1);
  const double sine = tangent * cosine;
  for (std::size_t k = 0; k < matrix.order; ++k) {
    const double left = matrix.at(k, p);
    const double right = matrix.at(k, q);
    matrix.at(k, p) = cosine * left - sine * right;
    matrix.at(k, q) = sine * left + cosine * right;
  }
  for (std::size_t k = 0; k < matrix.order; ++k) {
    const double upper = matrix.at(p, k);
    const double lower = matrix.at(q, k);
    matrix.at(p, k) = cosine * upper - sine * lower;
    matrix.at(q, k) = sine * upper + cosine * lower;
  }
}

}  // namespace

std::vector<double> symmetric_eigenvalues(SquareMatrix matrix) {
  double whole = off_diagonal_square(matrix);
  for (std::size_t i = 0; i < matrix.order; ++i) whole += matrix.at(i, i) * matrix.at(i, i);
  // Convergence is quadratic: a dozen sweeps are enough for any order that is sensible here.
  constexpr int kSweeps = 50;
  for (int sweep = 0; sweep < kSweeps && off_diagonal_square(matrix) > 1e-32 * whole; ++sweep) {
    for (std::size_t p = 0; p + 1 < matrix.order; ++p) {
      for (std::size_t q = p + 1; q < matrix.order; ++q) rotate(matrix, p, q);
    }
  }
  std::vector<double> eigenvalues(matrix.order);
  for (std::size_t i = 0; i < matrix.order; ++i) eigenvalues[i] = matrix.at(i, i);
  std::sort(eigenvalues.begin(), eigenvalues.end());
  return eigenvalues;
}

void solve_positive_definite(SquareMatrix matrix, std::span<double> right) {
  const std::size_t order = matrix.order;
  for (std::size_t j = 0; j < order; ++j) {
    for (std::size_t i = j; i < order; ++i) {
      double sum = matrix.at(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= matrix.at(i, k) * matrix.at(j, k);
      if (i == j) STARLING_CHECK(sum > 0, std::string("the matrix is not positive definite"));
      matrix.at(i, j) = i == j ? std::sqrt(sum) : sum / matrix.at(j, j);
    }
  }
  for (std::size_t i = 0; i < order; ++i) {
    for (std::size_t k = 0; k < i; ++k) right[i] -= matrix.at(i, k) * right[k];
    right[i] /= matrix.at(i, i);
  }
  for (std::size_t i = order; i-- > 0;) {
    for (std::size_t k = i + 1; k < order; ++k) right[i] -= matrix.at(k, i) * right[k];
    right[i] /= matrix.at(i, i);
  }
}

}  // namespace starling::lab
