// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The problems of the convergence laboratory: smooth, strongly convex functions f in doubles, whose optimum x* is known to rounding, and
// about whose Hessian enough is known to prove how much a gradient step T(x) = x - gamma grad f(x) contracts. docs/converge.md derives the
// formulas.
//
//   std::unique_ptr<Problem> problem = make_problem({.name = "logistic", .dimension = 8});
//   problem->gradient(x, 0, problem->dimension(), slope);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/lab/converge_matrix.h"

namespace starling::lab {

// Immutable once made, and so safe to share between threads.
class Problem {
 public:
  virtual ~Problem() = default;
  Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  std::size_t dimension() const { return optimum_.size(); }
  const std::vector<double>& optimum() const { return optimum_; }

  // The components [begin, end) of the gradient at x, into slope[0 … end - begin).
  virtual void gradient(std::span<const double> x, std::size_t begin, std::size_t end, std::span<double> slope) const = 0;

  // Given |x_j - x*_j| <= errors[j] for all j, numbers that |T(x)_i - x*_i| cannot exceed, for i in [begin, end), into
  // bounds[0 … end - begin). Holds for every such x, not only near the optimum. Homogeneous: twice the errors give twice the bounds.
  virtual void step_bounds(double step_size, std::span<const double> errors, std::size_t begin, std::size_t end,
                           std::span<double> bounds) const = 0;

  // All eigenvalues of the Hessian, anywhere, lie between these two.
  struct Curvature {
    double smallest = 0;
    double largest = 0;
  };
  virtual Curvature curvature() const = 0;

  // No diagonal element of the Hessian exceeds it anywhere.
  virtual double largest_diagonal() const = 0;

  // How many products a component of the gradient adds up, one after the other: what its rounding errors grow with.
  virtual std::size_t summands() const = 0;

  // max |grad f(x*)|: how well the optimum is known.
  double slope_at_optimum() const;

 protected:
  std::vector<double> optimum_;
};

// f(x) = 1/2 (x - x*)ᵀ A (x - x*), A symmetric and positive definite.
class QuadraticProblem : public Problem {
 public:
  QuadraticProblem(SquareMatrix matrix, std::vector<double> optimum);
  void gradient(std::span<const double> x, std::size_t begin, std::size_t end, std::span<double> slope) const override;
  void step_bounds(double step_size, std::span<const double> errors, std::size_t begin, std::size_t end,
                   std::span<double> bounds) const override;
  Curvature curvature() const override { return curvature_; }
  double largest_diagonal() const override;
  std::size_t summands() const override { return dimension(); }
  const SquareMatrix& matrix() const { return matrix_; }

 private:
  SquareMatrix matrix_;
  std::vector<double> right_;  // A x*.
  Curvature curvature_;
};

// f(w) = mean over samples of log(1 + exp(-y w·x)) + regularisation/2 |w|². The optimum is found by Newton's method.
class LogisticProblem : public Problem {
 public:
  // inputs: samples × dimension, row by row; signs: +1 or -1 per sample. Preconditions: regularisation > 0, at least one sample.
  LogisticProblem(std::size_t dimension, std::vector<double> inputs, std::vector<double> signs, double regularisation);
  void gradient(std::span<const double> x, std::size_t begin, std::size_t end, std::span<double> slope) const override;
  void step_bounds(double step_size, std::span<const double> errors, std::size_t begin, std::size_t end,
                   std::span<double> bounds) const override;
  Curvature curvature() const override { return curvature_; }
  double largest_diagonal() const override;
  std::size_t summands() const override { return dimension() + signs_.size(); }

 private:
  double margin(std::span<const double> x, std::size_t sample) const;
  SquareMatrix hessian(std::span<const double> x) const;
  void find_optimum(std::size_t dimension);

  std::vector<double> inputs_;
  std::vector<double> signs_;
  double regularisation_;
  std::vector<double> diagonal_;  // Of the Hessian, at most.
  Curvature curvature_;
};

struct ProblemOptions {
  std::string name = "quadratic";  // One of problem_names().
  std::size_t dimension = 16;
  double condition = 4;          // quadratic: largest over smallest diagonal element.
  double coupling = 0.5;         // quadratic, logistic: how much of the diagonal the other elements of a row reach, in [0, 1).
  double regularisation = 0.02;  // logistic.
  std::size_t samples = 320;     // logistic.
  std::uint64_t seed = 1;
};

// quadratic, laplace, logistic.
const std::vector<std::string>& problem_names();

inline constexpr std::size_t kLargestDimension = 256;

// Throws UserError for a name that does not exist and values out of range.
std::unique_ptr<Problem> make_problem(const ProblemOptions& options);

}  // namespace starling::lab
