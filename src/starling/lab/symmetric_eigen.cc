// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

// The matrix on its way: what EISPACK calls column j is row j here, so that all inner loops run along memory. After reduce() it holds the
// orthogonal transformation, after iterate() the eigenvectors.
class Solver {
 public:
  explicit Solver(const SquareMatrix& matrix) : n_(matrix.order), v_(matrix), d_(n_), e_(n_) {}

  void reduce();
  void iterate();

  const std::vector<double>& values() const { return d_; }
  const double* vector(std::size_t k) const { return &v_.values[k * n_]; }

 private:
  double* column(std::size_t j) { return &v_.values[j * n_]; }
  void reflect(std::size_t i, double scale);
  void accumulate();
  void sweep(std::size_t l, std::size_t m);

  std::size_t n_;
  SquareMatrix v_;
  std::vector<double> d_;  // The diagonal; in the end, eigenvalues.
  std::vector<double> e_;  // Beside the diagonal.
  double shift_ = 0;       // Of the diagonal from where the iteration is, so far.
};

// Makes row i zero left of the element beside the diagonal, by a reflection from both sides; d_ has the row.
void Solver::reflect(std::size_t i, double scale) {
  double h = 0;
  for (std::size_t k = 0; k < i; ++k) {
    d_[k] /= scale;
    h += d_[k] * d_[k];
  }
  const double last = d_[i - 1];
  const double root = last > 0 ? -std::sqrt(h) : std::sqrt(h);
  e_[i] = scale * root;
  h -= last * root;
  d_[i - 1] = last - root;
  std::fill_n(e_.begin(), i, 0.0);
  for (std::size_t j = 0; j < i; ++j) {
    const double f = d_[j];
    column(i)[j] = f;
    const double* v = column(j);
    double g = e_[j] + v[j] * f;
    for (std::size_t k = j + 1; k < i; ++k) {
      g += v[k] * d_[k];
      e_[k] += v[k] * f;
    }
    e_[j] = g;
  }
  double f = 0;
  for (std::size_t j = 0; j < i; ++j) {
    e_[j] /= h;
    f += e_[j] * d_[j];
  }
  for (std::size_t j = 0; j < i; ++j) e_[j] -= f / (h + h) * d_[j];
  for (std::size_t j = 0; j < i; ++j) {
    const double dj = d_[j];
    const double ej = e_[j];
    double* v = column(j);
    for (std::size_t k = j; k < i; ++k) v[k] -= dj * e_[k] + ej * d_[k];
    d_[j] = v[i - 1];
    v[i] = 0;
  }
  d_[i] = h;
}

// To three diagonals.
void Solver::reduce() {
  for (std::size_t j = 0; j < n_; ++j) d_[j] = column(j)[n_ - 1];
  for (std::size_t i = n_ - 1; i > 0; --i) {
    double scale = 0;
    for (std::size_t k = 0; k < i; ++k) scale += std::abs(d_[k]);
    if (scale > 0) {
      reflect(i, scale);
      continue;
    }
    e_[i] = d_[i - 1];
    for (std::size_t j = 0; j < i; ++j) {
      d_[j] = column(j)[i - 1];
      column(j)[i] = 0;
      column(i)[j] = 0;
    }
    d_[i] = 0;
  }
  accumulate();
}

// The product of all reflections.
void Solver::accumulate() {
  for (std::size_t i = 0; i + 1 < n_; ++i) {
    column(i)[n_ - 1] = column(i)[i];
    column(i)[i] = 1;
    double* next = column(i + 1);
    const double h = d_[i + 1];
    if (h != 0) {
      for (std::size_t k = 0; k <= i; ++k) d_[k] = next[k] / h;
      for (std::size_t j = 0; j <= i; ++j) {
        double* v = column(j);
        double g = 0;
        for (std::size_t k = 0; k <= i; ++k) g += next[k] * v[k];
        for (std::size_t k = 0; k <= i; ++k) v[k] -= g * d_[k];
      }
    }
    std::fill_n(next, i + 1, 0.0);
  }
  for (std::size_t j = 0; j < n_; ++j) {
    d_[j] = column(j)[n_ - 1];
    column(j)[n_ - 1] = 0;
  }
  column(n_ - 1)[n_ - 1] = 1;
  e_[0] = 0;
}

// One QL step on the rows l to m, shifted by what is nearest to the eigenvalue at l.
void Solver::sweep(std::size_t l, std::size_t m) {
  const double first = d_[l];
  double p = (d_[l + 1] - first) / (2 * e_[l]);
  const double r0 = p < 0 ? -std::hypot(p, 1.0) : std::hypot(p, 1.0);
  d_[l] = e_[l] / (p + r0);
  d_[l + 1] = e_[l] * (p + r0);
  const double next = d_[l + 1];
  const double h0 = first - d_[l];
  for (std::size_t i = l + 2; i < n_; ++i) d_[i] -= h0;
  shift_ += h0;
  p = d_[m];
  double c = 1;
  double c2 = 1;
  double c3 = 1;
  double s = 0;
  double s2 = 0;
  const double beside = e_[l + 1];
  for (std::size_t i = m; i-- > l;) {
    c3 = c2;
    c2 = c;
    s2 = s;
    const double g = c * e_[i];
    const double h = c * p;
    const double r = std::hypot(p, e_[i]);
    e_[i + 1] = s * r;
    s = e_[i] / r;
    c = p / r;
    p = c * d_[i] - s * g;
    d_[i + 1] = h + s * (c * g + s * d_[i]);
    double* left = column(i);
    double* right = column(i + 1);
    for (std::size_t k = 0; k < n_; ++k) {
      const double old = right[k];
      right[k] = s * left[k] + c * old;
      left[k] = c * left[k] - s * old;
    }
  }
  p = -s * s2 * c3 * beside * e_[l] / next;
  e_[l] = s * p;
  d_[l] = c * p;
}

void Solver::iterate() {
  constexpr int kSweeps = 300;  // One or two are usual.
  std::rotate(e_.begin(), e_.begin() + 1, e_.end());
  e_[n_ - 1] = 0;
  double largest = 0;
  for (std::size_t l = 0; l < n_; ++l) {
    largest = std::max(largest, std::abs(d_[l]) + std::abs(e_[l]));
    const double negligible = std::numeric_limits<double>::epsilon() * largest;
    std::size_t m = l;
    while (std::abs(e_[m]) > negligible) ++m;  // The last is zero.
    int sweeps = 0;
    while (m > l && std::abs(e_[l]) > negligible) {
      STARLING_CHECK(++sweeps <= kSweeps, std::string("the QL iteration does not converge"));
      sweep(l, m);
    }
    d_[l] += shift_;
    e_[l] = 0;
  }
}

}  // namespace

EigenPairs symmetric_eigenpairs(const SquareMatrix& matrix) {
  for (std::size_t i = 0; i < matrix.order; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      STARLING_CHECK(std::isfinite(matrix.at(i, j)) && matrix.at(i, j) == matrix.at(j, i), std::string("not symmetric, or not finite"));
    }
  }
  EigenPairs pairs{.values = {}, .vectors = SquareMatrix(matrix.order)};
  if (matrix.order == 0) return pairs;
  Solver solver(matrix);
  solver.reduce();
  solver.iterate();
  std::vector<std::size_t> order(matrix.order);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return solver.values()[a] > solver.values()[b]; });
  for (std::size_t k = 0; k < order.size(); ++k) {
    pairs.values.push_back(solver.values()[order[k]]);
    std::copy_n(solver.vector(order[k]), matrix.order, &pairs.vectors.at(k, 0));
  }
  return pairs;
}

}  // namespace starling::lab
