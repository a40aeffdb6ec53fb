// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/principal_components.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/lab/converge_matrix.h"

namespace starling::lab {
namespace {

using Rows = std::vector<std::vector<float>>;

std::vector<std::span<const float>> views(const Rows& rows) { return {rows.begin(), rows.end()}; }

PrincipalComponents analyse(const Rows& rows, std::size_t count = 2, int threads = 1) {
  WorkPool pool(threads);
  return principal_components(views(rows), count, pool);
}

Rows draw(std::size_t points, std::size_t dimensions, RandomStream& stream, double size = 1) {
  Rows rows(points, std::vector<float>(dimensions));
  for (auto& row : rows) {
    for (std::size_t i = 0; i < dimensions; ++i) {
      // Different in every direction, and far from the origin, as weights are.
      row[i] = static_cast<float>(3 + size * stream.normal() * (1 + static_cast<double>(i % 7)));
    }
  }
  return rows;
}

void expect_orthonormal(const PrincipalComponents& components, const std::string& what) {
  for (std::size_t a = 0; a < components.axes.size(); ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      double product = 0;
      for (std::size_t i = 0; i < components.mean.size(); ++i) product += components.axes[a][i] * components.axes[b][i];
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-13) << what;
    }
    const auto smaller = [](double left, double right) { return std::abs(left) < std::abs(right); };
    EXPECT_GT(*std::max_element(components.axes[a].begin(), components.axes[a].end(), smaller), 0) << what;
  }
}

// The plain way: the whole covariance matrix, of which the axes are eigenvectors with the variance explained as eigenvalue.
TEST(PrincipalComponents, AxesAreEigenvectorsOfTheCovariance) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RandomStream stream(seed, 0, "test");
    const std::size_t dimensions = 2 + stream.below(12);
    const std::size_t points = 3 + stream.below(20);
    const Rows rows = draw(points, dimensions, stream);
    const PrincipalComponents components = analyse(rows);
    std::vector<double> mean(dimensions);
    for (const auto& row : rows) {
      for (std::size_t i = 0; i < dimensions; ++i) mean[i] += static_cast<double>(row[i]) / static_cast<double>(points);
    }
    SquareMatrix covariance(dimensions);
    double whole = 0;
    for (const auto& row : rows) {
      for (std::size_t i = 0; i < dimensions; ++i) {
        for (std::size_t j = 0; j < dimensions; ++j) {
          covariance.at(i, j) += (static_cast<double>(row[i]) - mean[i]) * (static_cast<double>(row[j]) - mean[j]);
        }
        whole += (static_cast<double>(row[i]) - mean[i]) * (static_cast<double>(row[i]) - mean[i]);
      }
    }
    std::vector<double> eigenvalues = symmetric_eigenvalues(covariance);
    std::reverse(eigenvalues.begin(), eigenvalues.end());
    const std::string what = "seed " + std::to_string(seed);
    expect_orthonormal(components, what);
    EXPECT_EQ(components.determined, 2u) << what;
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_NEAR(components.explained_variance[k], eigenvalues[k] / whole, 1e-12) << what;
      for (std::size_t i = 0; i < dimensions; ++i) {
        double product = 0;
        for (std::size_t j = 0; j < dimensions; ++j) product += covariance.at(i, j) * components.axes[k][j];
        EXPECT_NEAR(product, eigenvalues[k] * components.axes[k][i], 1e-10 * whole) << what;
      }
    }
  }
}

// Points a + x b + y c with small whole numbers are exact in floats, so that the plane is, too.
TEST(PrincipalComponents, PointsOfAPlaneAreFoundAgain) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    RandomStream stream(seed, 0, "test");
    constexpr std::size_t kDimensions = 500;
    const auto whole = [&] { return static_cast<float>(stream.below(9)) - 4; };
    Rows base(3, std::vector<float>(kDimensions));
    for (auto& row : base) std::generate(row.begin(), row.end(), whole);
    Rows rows(12, base[0]);
    for (auto& row : rows) {
      const float x = whole();
      const float y = whole();
      for (std::size_t i = 0; i < kDimensions; ++i) row[i] += x * base[1][i] + y * base[2][i];
    }
    const PrincipalComponents components = analyse(rows);
    const std::string what = "seed " + std::to_string(seed);
    EXPECT_NEAR(components.explained_variance[0] + components.explained_variance[1], 1, 1e-13) << what;
    expect_orthonormal(components, what);
    for (const auto& row : rows) {
      std::vector<float> again(kDimensions);
      components.reconstruct(components.project(row), again);
      for (std::size_t i = 0; i < kDimensions; ++i) EXPECT_NEAR(again[i], row[i], 1e-5) << what;
    }
  }
}

TEST(PrincipalComponents, CoordinatesAreCentredUncorrelatedAndOfTheVarianceThatIsSaid) {
  RandomStream stream(3, 0, "test");
  const Rows rows = draw(30, 200, stream);
  const PrincipalComponents components = analyse(rows);
  double whole = 0;
  double xx = 0;
  double xy = 0;
  double yy = 0;
  double x = 0;
  double y = 0;
  for (const auto& row : rows) {
    const std::vector<double> at = components.project(row);
    x += at[0];
    y += at[1];
    xx += at[0] * at[0];
    xy += at[0] * at[1];
    yy += at[1] * at[1];
    for (std::size_t i = 0; i < row.size(); ++i) whole += std::pow(static_cast<double>(row[i]) - components.mean[i], 2);
  }
  EXPECT_NEAR(x, 0, 1e-10);
  EXPECT_NEAR(y, 0, 1e-10);
  EXPECT_NEAR(xy / whole, 0, 1e-13);
  EXPECT_NEAR(xx / whole, components.explained_variance[0], 1e-13);
  EXPECT_NEAR(yy / whole, components.explained_variance[1], 1e-13);
  EXPECT_GE(xx, yy);
}

// Neither the order of the points, nor where the origin is, nor the unit changes the axes.
TEST(PrincipalComponents, OrderOriginAndUnitDoNotMatter) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    RandomStream stream(seed, 0, "test");
    const Rows rows = draw(9, 40, stream);
    Rows changed(rows.rbegin(), rows.rend());
    for (auto& row : changed) {
      for (float& value : row) value = 4 * (value + 8);
    }
    const PrincipalComponents one = analyse(rows);
    const PrincipalComponents other = analyse(changed);
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_NEAR(one.explained_variance[k], other.explained_variance[k], 1e-5) << "seed " << seed;
      for (std::size_t i = 0; i < 40; ++i) EXPECT_NEAR(one.axes[k][i], other.axes[k][i], 1e-4) << "seed " << seed;
    }
  }
}

TEST(PrincipalComponents, TheNumberOfThreadsChangesNoBit) {
  RandomStream stream(5, 0, "test");
  const Rows rows = draw(23, 1500, stream);
  const PrincipalComponents one = analyse(rows, 2, 1);
  for (const int threads : {2, 3, 7}) {
    const PrincipalComponents other = analyse(rows, 2, threads);
    EXPECT_EQ(one.axes, other.axes) << threads;
    EXPECT_EQ(one.explained_variance, other.explained_variance) << threads;
  }
}

TEST(PrincipalComponents, PointsOnALineDetermineOneAxisAndTheOtherIsOrthogonal) {
  const Rows rows{{1, 1, 1}, {2, 3, 1}, {4, 7, 1}};
  const PrincipalComponents components = analyse(rows);
  EXPECT_EQ(components.determined, 1u);
  EXPECT_NEAR(components.explained_variance[0], 1, 1e-15);
  EXPECT_EQ(components.explained_variance[1], 0);
  EXPECT_NEAR(components.axes[0][1], 2 / std::sqrt(5.0), 1e-14);
  expect_orthonormal(components, "line");
}

TEST(PrincipalComponents, EqualPointsDetermineNothing) {
  const PrincipalComponents components = analyse(Rows(5, std::vector<float>{0.1f, 0.2f, 0.3f}));
  EXPECT_EQ(components.determined, 0u);
  EXPECT_EQ(components.explained_variance, (std::vector<double>{0, 0}));
  expect_orthonormal(components, "equal");
  EXPECT_EQ(components.project(std::vector<float>{0.1f, 0.2f, 0.3f}), (std::vector<double>{0, 0}));
}

// A known answer in very many dimensions: of a random walk, axis k explains 6 / (pi k)² (Antognini and Sohl-Dickstein, 2018).
TEST(PrincipalComponents, ARandomWalkHasItsKnownVariances) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    RandomStream stream(seed, 0, "test");
    std::vector<float> at(20000);
    Rows rows;
    for (int step = 0; step < 100; ++step) {
      for (float& value : at) value += static_cast<float>(stream.uniform() - 0.5);
      rows.push_back(at);
    }
    const PrincipalComponents components = analyse(rows, 3, 2);
    for (std::size_t k = 0; k < 3; ++k) {
      const double expected = 6 / std::pow(std::numbers::pi * static_cast<double>(k + 1), 2);
      EXPECT_NEAR(components.explained_variance[k], expected, 0.01) << "seed " << seed << ", axis " << k;
    }
  }
}

// Weights move little beside what they are: the mean is taken off before anything is multiplied.
TEST(PrincipalComponents, SmallDifferencesOfLargeNumbersAreNotLost) {
  Rows rows(4, std::vector<float>(64, 1024));
  rows[0][3] += 0.001f;
  rows[1][3] -= 0.001f;
  rows[2][9] += 0.0005f;
  rows[3][9] -= 0.0005f;
  const PrincipalComponents components = analyse(rows);
  EXPECT_NEAR(components.axes[0][3], 1, 1e-12);
  EXPECT_NEAR(components.axes[1][9], 1, 1e-12);
  EXPECT_NEAR(components.explained_variance[0] + components.explained_variance[1], 1, 1e-12);
}

TEST(PrincipalComponents, RefusesPointsOfDifferentSizesAndMoreAxesThanDimensions) {
  EXPECT_THROW((void)analyse({{1, 2}, {1, 2, 3}}), BrokenInvariant);
  EXPECT_THROW((void)analyse({{1}, {2}}), BrokenInvariant);
  EXPECT_THROW((void)analyse({}), BrokenInvariant);
}

}  // namespace
}  // namespace starling::lab
