// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The directions in which points of a space of very many dimensions differ most (principal component analysis), where there are far fewer
// points than dimensions: the eigenvectors of the matrix of the points' inner products lead to those of their covariance.
//
//   const PrincipalComponents plane = principal_components(points, 2, pool);
//   const std::vector<double> xy = plane.project(points[0]);
//   plane.reconstruct(xy, weights);                              // The point of the plane that is nearest to it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "starling/base/work_pool.h"

namespace starling::lab {

struct PrincipalComponents {
  std::vector<double> mean{};
  std::vector<std::vector<double>> axes{};  // Orthonormal; along the first the points differ most. The largest element of each is positive.
  std::vector<double> explained_variance{};  // Of each axis, as a fraction of the whole; 0 where all points are equal.
  std::size_t determined = 0;  // So many axes come from the points; the others, where points lie on a line or are equal, are any that fit.

  // Coordinates along the axes, from the mean.
  std::vector<double> project(std::span<const float> point) const;

  // The mean, and `coordinates` along the axes.
  void reconstruct(std::span<const double> coordinates, std::span<float> to) const;
};

// Sums are in doubles, and the same for any number of threads. Precondition (checked): there are points, all of the same size, and `count`
// is at most that size. Memory: the axes, and for each thread 2 KB per point. Time: dimensions × points² / 2 multiplications.
PrincipalComponents principal_components(std::span<const std::span<const float>> points, std::size_t count, WorkPool& pool);

}  // namespace starling::lab
