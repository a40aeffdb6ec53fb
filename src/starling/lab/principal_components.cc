// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/principal_components.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "starling/base/error.h"
#include "starling/lab/parallel.h"
#include "starling/lab/symmetric_eigen.h"

namespace starling::lab {
namespace {

using Points = std::span<const std::span<const float>>;

// An axis with less of the first one's variance is rounding: eigenvalues are exact to that of the largest.
constexpr double kNegligible = 1e-12;
constexpr std::size_t kBlock = 256;  // Dimensions at a time, so that the rows of many points stay in the cache.

std::vector<double> mean_of(Points points) {
  std::vector<double> mean(points[0].size());
  for (const std::span<const float> point : points) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(point[i]);
  }
  for (double& value : mean) value /= static_cast<double>(points.size());
  return mean;
}

// In eight sums, so that the compiler makes vectors of them.
double inner_product(const double* a, const double* b, std::size_t size) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (const double lane : sums) sum += lane;
  return sum;
}

// Every `jobs`-th row, from `job` on, of the inner products of what the points are from their mean: lower triangle.
void add_rows(Points points, const std::vector<double>& mean, int job, int jobs, SquareMatrix& products) {
  std::vector<double> block(points.size() * kBlock);
  for (std::size_t first = 0; first < mean.size(); first += kBlock) {
    const std::size_t size = std::min(kBlock, mean.size() - first);
    for (std::size_t i = 0; i < points.size(); ++i) {
      for (std::size_t k = 0; k < size; ++k) block[i * kBlock + k] = static_cast<double>(points[i][first + k]) - mean[first + k];
    }
    for (auto i = static_cast<std::size_t>(job); i < points.size(); i += static_cast<std::size_t>(jobs)) {
      for (std::size_t j = 0; j <= i; ++j) products.at(i, j) += inner_product(&block[i * kBlock], &block[j * kBlock], size);
    }
  }
}

SquareMatrix inner_products(Points points, const std::vector<double>& mean, WorkPool& pool) {
  SquareMatrix products(points.size());
  const int jobs = pool.threads();
  run_parallel(pool, jobs, [&](int job) { add_rows(points, mean, job, jobs, products); });
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) products.at(j, i) = products.at(i, j);
  }
  return products;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) { return inner_product(a.data(), b.data(), a.size()); }

void scale(std::vector<double>& vector, double factor) {
  for (double& value : vector) value *= factor;
}

// Twice is enough for orthogonality to the last bits.
void make_orthonormal(std::vector<double>& vector, const std::vector<std::vector<double>>& others) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const std::vector<double>& other : others) {
      const double part = dot(vector, other);
      for (std::size_t i = 0; i < vector.size(); ++i) vector[i] -= part * other[i];
    }
    scale(vector, 1 / std::sqrt(dot(vector, vector)));
  }
}

// The eigenvector of the covariance that belongs to one of the inner products.
std::vector<double> combined(Points points, const std::vector<double>& mean, const double* weights) {
  std::vector<double> axis(mean.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t k = 0; k < axis.size(); ++k) axis[k] += weights[i] * (static_cast<double>(points[i][k]) - mean[k]);
  }
  return axis;
}

// The unit vector that the others have least of: what is left of it is not small.
std::vector<double> any_other(const std::vector<std::vector<double>>& others, std::size_t size) {
  std::vector<double> covered(size);
  for (const std::vector<double>& other : others) {
    for (std::size_t k = 0; k < size; ++k) covered[k] += other[k] * other[k];
  }
  std::vector<double> axis(size);
  axis[static_cast<std::size_t>(std::min_element(covered.begin(), covered.end()) - covered.begin())] = 1;
  return axis;
}

// Eigenvectors are known but for their sign.
void choose_sign(std::vector<double>& axis) {
  const auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
  if (*std::max_element(axis.begin(), axis.end(), smaller) < 0) scale(axis, -1);
}

}  // namespace

PrincipalComponents principal_components(Points points, std::size_t count, WorkPool& pool) {
  STARLING_CHECK(!points.empty() && count <= points[0].size(), std::string("no points, or more axes than dimensions"));
  for (const auto& point : points) STARLING_CHECK(point.size() == points[0].size(), std::string("points of different sizes"));
  PrincipalComponents result;
  result.mean = mean_of(points);
  const SquareMatrix products = inner_products(points, result.mean, pool);
  double whole = 0;
  for (std::size_t i = 0; i < points.size(); ++i) whole += products.at(i, i);
  const EigenPairs pairs = symmetric_eigenpairs(products);
  for (std::size_t k = 0; k < count; ++k) {
    const double variance = k < pairs.values.size() ? pairs.values[k] : 0;
    const bool determined = variance > 0 && variance > kNegligible * pairs.values[0];
    std::vector<double> axis =
        determined ? combined(points, result.mean, &pairs.vectors.values[k * points.size()]) : any_other(result.axes, result.mean.size());
    make_orthonormal(axis, result.axes);
    choose_sign(axis);
    result.axes.push_back(std::move(axis));
    result.explained_variance.push_back(determined ? variance / whole : 0);
    result.determined += determined ? 1 : 0;
  }
  return result;
}

std::vector<double> PrincipalComponents::project(std::span<const float> point) const {
  std::vector<double> difference(mean.size());
  for (std::size_t i = 0; i < mean.size(); ++i) difference[i] = static_cast<double>(point[i]) - mean[i];
  std::vector<double> coordinates;
  for (const std::vector<double>& axis : axes) coordinates.push_back(dot(difference, axis));
  return coordinates;
}

void PrincipalComponents::reconstruct(std::span<const double> coordinates, std::span<float> to) const {
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double value = mean[i];
    for (std::size_t k = 0; k < axes.size(); ++k) value += coordinates[k] * axes[k][i];
    to[i] = static_cast<float>(value);
  }
}

}  // namespace starling::lab
