// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/symmetric_eigen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::lab {
namespace {

double size_of(const SquareMatrix& matrix) {
  double sum = 0;
  for (const double value : matrix.values) sum += value * value;
  return std::sqrt(sum);
}

// A v = λ v for all pairs, the vectors are orthonormal, and the values descend and add up to the trace.
void expect_decomposed(const SquareMatrix& matrix, const EigenPairs& pairs, const std::string& what) {
  const std::size_t n = matrix.order;
  const double tolerance = 1e-14 * static_cast<double>(n + 1) * (size_of(matrix) + std::numeric_limits<double>::min());
  ASSERT_EQ(pairs.values.size(), n) << what;
  EXPECT_TRUE(std::is_sorted(pairs.values.rbegin(), pairs.values.rend())) << what;
  double worst = 0;
  double worst_angle = 0;
  double trace = 0;
  for (std::size_t k = 0; k < n; ++k) {
    trace += pairs.values[k] - matrix.at(k, k);
    for (std::size_t i = 0; i < n; ++i) {
      double product = 0;
      double angle = i == k ? -1 : 0;
      for (std::size_t j = 0; j < n; ++j) {
        product += matrix.at(i, j) * pairs.vectors.at(k, j);
        angle += pairs.vectors.at(i, j) * pairs.vectors.at(k, j);
      }
      worst = std::max(worst, std::abs(product - pairs.values[k] * pairs.vectors.at(k, i)));
      worst_angle = std::max(worst_angle, std::abs(angle));
    }
  }
  EXPECT_LE(worst, tolerance) << what;
  EXPECT_LE(worst_angle, 1e-14 * static_cast<double>(n + 1)) << what;
  EXPECT_LE(std::abs(trace), tolerance) << what;
}

SquareMatrix draw(std::size_t n, RandomStream& stream) {
  SquareMatrix matrix(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) matrix.at(i, j) = matrix.at(j, i) = stream.normal();
  }
  return matrix;
}

TEST(SymmetricEigen, RandomMatricesAreDecomposed) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    RandomStream stream(seed, 0, "test");
    const std::size_t n = 1 + stream.below(seed % 10 == 0 ? 80 : 20);
    const SquareMatrix matrix = draw(n, stream);
    expect_decomposed(matrix, symmetric_eigenpairs(matrix), "seed " + std::to_string(seed));
  }
}

// Another algorithm of ours, Jacobi's rotations, finds the same values.
TEST(SymmetricEigen, ValuesAreThoseOfJacobi) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    RandomStream stream(seed, 0, "test");
    const SquareMatrix matrix = draw(2 + stream.below(30), stream);
    const EigenPairs pairs = symmetric_eigenpairs(matrix);
    std::vector<double> expected = symmetric_eigenvalues(matrix);
    std::reverse(expected.begin(), expected.end());
    for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_NEAR(pairs.values[k], expected[k], 1e-12) << "seed " << seed;
  }
}

TEST(SymmetricEigen, TheLaplaceMatrixHasItsKnownValuesAndVectors) {
  constexpr std::size_t kOrder = 30;
  SquareMatrix matrix(kOrder);
  for (std::size_t i = 0; i < kOrder; ++i) {
    matrix.at(i, i) = 2;
    if (i > 0) matrix.at(i, i - 1) = matrix.at(i - 1, i) = -1;
  }
  const EigenPairs pairs = symmetric_eigenpairs(matrix);
  for (std::size_t k = 0; k < kOrder; ++k) {
    const double angle = static_cast<double>(kOrder - k) * std::numbers::pi / (kOrder + 1);
    EXPECT_NEAR(pairs.values[k], 2 - 2 * std::cos(angle), 1e-13) << k;
    const double first = std::sin(angle) * std::sqrt(2.0 / (kOrder + 1));
    EXPECT_NEAR(std::abs(pairs.vectors.at(k, 0)), std::abs(first), 1e-13) << k;
  }
}

// Values that come several times, zeros, and rows that are decoupled are where such solvers go wrong.
TEST(SymmetricEigen, SpecialMatricesAreDecomposed) {
  SquareMatrix zero(5);
  expect_decomposed(zero, symmetric_eigenpairs(zero), "zero");
  SquareMatrix unit(6);
  for (std::size_t i = 0; i < 6; ++i) unit.at(i, i) = 1;
  expect_decomposed(unit, symmetric_eigenpairs(unit), "unit");
  SquareMatrix diagonal(4);
  for (std::size_t i = 0; i < 4; ++i) diagonal.at(i, i) = static_cast<double>(i) - 1.5;
  expect_decomposed(diagonal, symmetric_eigenpairs(diagonal), "diagonal");
  SquareMatrix ones(7);
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  const EigenPairs pairs = symmetric_eigenpairs(ones);
  expect_decomposed(ones, pairs, "ones");
  EXPECT_NEAR(pairs.values[0], 7, 1e-13);
  EXPECT_NEAR(pairs.values[1], 0, 1e-13);
  SquareMatrix blocks(5);
  blocks.at(0, 1) = blocks.at(1, 0) = 3;
  blocks.at(3, 4) = blocks.at(4, 3) = -3;
  expect_decomposed(blocks, symmetric_eigenpairs(blocks), "blocks");
  SquareMatrix graded(8);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) graded.at(i, j) = std::pow(10.0, -static_cast<double>(i + j));
  }
  expect_decomposed(graded, symmetric_eigenpairs(graded), "graded");
  EXPECT_TRUE(symmetric_eigenpairs(SquareMatrix(0)).values.empty());
}

TEST(SymmetricEigen, RefusesWhatIsNotSymmetricOrNotFinite) {
  SquareMatrix matrix(2);
  matrix.at(0, 1) = 1;
  EXPECT_THROW((void)symmetric_eigenpairs(matrix), BrokenInvariant);
  matrix.at(1, 0) = matrix.at(0, 1) = std::numeric_limits<double>::infinity();
  EXPECT_THROW((void)symmetric_eigenpairs(matrix), BrokenInvariant);
}

}  // namespace
}  // namespace starling::lab
