// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/portable_math.h"
#include "starling/base/random.h"

namespace starling::lab {
namespace {

std::vector<double> draw_normals(std::size_t count, std::uint64_t seed, std::string_view purpose) {
  RandomStream stream(seed, 0, purpose);
  std::vector<double> values(count);
  for (double& value : values) value = stream.normal();
  return values;
}

// 1 / (1 + exp(-z)), without overflow.
double sigmoid(double z) {
  if (z >= 0) return 1 / (1 + portable_exp(-z));
  const double power = portable_exp(z);
  return power / (1 + power);
}

// Diagonal elements evenly spaced in their logarithms from 1 down to 1 / condition. Element (i, j) is a random share of the smaller of the
// diagonal elements i and j, scaled so that no row reaches more than `coupling` times its own.
SquareMatrix draw_dominant_matrix(const ProblemOptions& options) {
  const std::size_t n = options.dimension;
  RandomStream stream(options.seed, 0, "converge matrix");
  SquareMatrix shares(n);
  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) shares.at(i, j) = shares.at(j, i) = 2 * stream.uniform() - 1;
  }
  for (std::size_t i = 0; i < n; ++i) {
    double row = 0;
    for (std::size_t j = 0; j < n; ++j) row += std::abs(shares.at(i, j));
    largest = std::max(largest, row);
  }
  SquareMatrix matrix(n);
  const double range = portable_log(options.condition);
  const double last = static_cast<double>(n > 1 ? n - 1 : 1);
  for (std::size_t i = 0; i < n; ++i) matrix.at(i, i) = portable_exp(-range * static_cast<double>(i) / last);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i != j) matrix.at(i, j) = options.coupling * shares.at(i, j) / largest * std::min(matrix.at(i, i), matrix.at(j, j));
    }
  }
  return matrix;
}

SquareMatrix laplace_matrix(std::size_t n) {
  SquareMatrix matrix(n);
  for (std::size_t i = 0; i < n; ++i) {
    matrix.at(i, i) = 2;
    if (i > 0) matrix.at(i, i - 1) = matrix.at(i - 1, i) = -1;
  }
  return matrix;
}

// Every sample has one large input, in turn the first, the second, …, and small others whose sum reaches `coupling`: so the Hessian is
// nearly diagonal wherever one stands, which is what a contraction in the max-norm needs.
std::unique_ptr<Problem> draw_logistic(const ProblemOptions& options) {
  const std::size_t n = options.dimension;
  const std::vector<double> truth = draw_normals(n, options.seed, "converge truth");
  RandomStream stream(options.seed, 0, "converge samples");
  std::vector<double> inputs;
  std::vector<double> signs;
  inputs.reserve(options.samples * n);
  const double small = n > 1 ? options.coupling / static_cast<double>(n - 1) : 0;
  for (std::size_t k = 0; k < options.samples; ++k) {
    double margin = 0;
    for (std::size_t j = 0; j < n; ++j) {
      const double size = j == k % n ? 0.5 + stream.uniform() : small * stream.uniform();
      inputs.push_back(stream.uniform() < 0.5 ? size : -size);
      margin += inputs.back() * truth[j];
    }
    signs.push_back(stream.uniform() < sigmoid(3 * margin) ? 1 : -1);
  }
  return std::make_unique<LogisticProblem>(n, std::move(inputs), std::move(signs), options.regularisation);
}

void check_range(std::string_view what, double value, double least, double most) {
  if (value >= least && value <= most) return;
  throw UserError(fmt::format("{} is {}, but it must be {} to {}", what, value, least, most));
}

}  // namespace

double Problem::slope_at_optimum() const {
  std::vector<double> slope(dimension());
  gradient(optimum_, 0, dimension(), slope);
  double largest = 0;
  for (const double value : slope) largest = std::max(largest, std::abs(value));
  return largest;
}

QuadraticProblem::QuadraticProblem(SquareMatrix matrix, std::vector<double> optimum) : matrix_(std::move(matrix)) {
  optimum_ = std::move(optimum);
  const std::size_t n = matrix_.order;
  STARLING_CHECK(n == optimum_.size() && n > 0, std::string("the optimum fits the matrix"));
  // Summed as in gradient(), so that the gradient at the optimum is exactly zero.
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += matrix_.at(i, j) * optimum_[j];
    right_.push_back(sum);
  }
  const std::vector<double> eigenvalues = symmetric_eigenvalues(matrix_);
  curvature_ = {eigenvalues.front(), eigenvalues.back()};
}

void QuadraticProblem::gradient(std::span<const double> x, std::size_t begin, std::size_t end, std::span<double> slope) const {
  for (std::size_t i = begin; i < end; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < matrix_.order; ++j) sum += matrix_.at(i, j) * x[j];
    slope[i - begin] = sum - right_[i];
  }
}

void QuadraticProblem::step_bounds(double step_size, std::span<const double> errors, std::size_t begin, std::size_t end,
                                   std::span<double> bounds) const {
  for (std::size_t i = begin; i < end; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < matrix_.order; ++j) sum += std::abs((i == j ? 1 : 0) - step_size * matrix_.at(i, j)) * errors[j];
    bounds[i - begin] = sum;
  }
}

double QuadraticProblem::largest_diagonal() const {
  double largest = 0;
  for (std::size_t i = 0; i < matrix_.order; ++i) largest = std::max(largest, matrix_.at(i, i));
  return largest;
}

LogisticProblem::LogisticProblem(std::size_t dimension, std::vector<double> inputs, std::vector<double> signs, double regularisation)
    : inputs_(std::move(inputs)), signs_(std::move(signs)), regularisation_(regularisation) {
  STARLING_CHECK(regularisation > 0 && !signs_.empty() && inputs_.size() == signs_.size() * dimension,
                 std::string("a logistic problem has samples of its dimension and a regularisation"));
  // The second derivative of the loss by its margin is at most 1/4.
  SquareMatrix most(dimension);
  const double share = 0.25 / static_cast<double>(signs_.size());
  for (std::size_t k = 0; k < signs_.size(); ++k) {
    const double* input = &inputs_[k * dimension];
    for (std::size_t i = 0; i < dimension; ++i) {
      for (std::size_t j = 0; j < dimension; ++j) most.at(i, j) += share * input[i] * input[j];
    }
  }
  for (std::size_t i = 0; i < dimension; ++i) diagonal_.push_back(regularisation + most.at(i, i));
  curvature_ = {regularisation, regularisation + symmetric_eigenvalues(most).back()};
  find_optimum(dimension);
}

double LogisticProblem::margin(std::span<const double> x, std::size_t sample) const {
  double sum = 0;
  for (std::size_t j = 0; j < x.size(); ++j) sum += inputs_[sample * x.size() + j] * x[j];
  return signs_[sample] * sum;
}

void LogisticProblem::gradient(std::span<const double> x, std::size_t begin, std::size_t end, std::span<double> slope) const {
  std::fill_n(slope.begin(), end - begin, 0.0);
  for (std::size_t k = 0; k < signs_.size(); ++k) {
    const double pull = -signs_[k] * sigmoid(-margin(x, k));
    for (std::size_t i = begin; i < end; ++i) slope[i - begin] += pull * inputs_[k * x.size() + i];
  }
  for (std::size_t i = begin; i < end; ++i) {
    slope[i - begin] = slope[i - begin] / static_cast<double>(signs_.size()) + regularisation_ * x[i];
  }
}

// T(x) - x* = (I - gamma H)(x - x*), where H is a mean of Hessians on the way from x* to x: regularisation I + (1/N) Σ s_k x_k x_kᵀ with
// 0 <= s_k <= 1/4. Where gamma H_ii <= 1 for all such H, the absolute value of 1 - gamma H_ii opens, and each sample's part of the row is
// largest at s_k = 0 or s_k = 1/4. Otherwise diagonal and rest are bounded on their own.
void LogisticProblem::step_bounds(double step_size, std::span<const double> errors, std::size_t begin, std::size_t end,
                                  std::span<double> bounds) const {
  const std::size_t n = errors.size();
  std::fill_n(bounds.begin(), end - begin, 0.0);
  for (std::size_t k = 0; k < signs_.size(); ++k) {
    const double* input = &inputs_[k * n];
    double whole = 0;
    for (std::size_t j = 0; j < n; ++j) whole += std::abs(input[j]) * errors[j];
    for (std::size_t i = begin; i < end; ++i) {
      const double own = std::abs(input[i]) * errors[i];
      const double rest = step_size * diagonal_[i] <= 1 ? std::max(0.0, whole - 2 * own) : std::max(0.0, whole - own);
      bounds[i - begin] += std::abs(input[i]) * rest;
    }
  }
  const double share = step_size * 0.25 / static_cast<double>(signs_.size());
  for (std::size_t i = begin; i < end; ++i) {
    const double first = std::abs(1 - step_size * regularisation_);
    const double factor = step_size * diagonal_[i] <= 1 ? first : std::max(first, std::abs(1 - step_size * diagonal_[i]));
    bounds[i - begin] = factor * errors[i] + share * bounds[i - begin];
  }
}

double LogisticProblem::largest_diagonal() const { return *std::max_element(diagonal_.begin(), diagonal_.end()); }

SquareMatrix LogisticProblem::hessian(std::span<const double> x) const {
  SquareMatrix result(x.size());
  for (std::size_t k = 0; k < signs_.size(); ++k) {
    const double probability = sigmoid(margin(x, k));
    const double weight = probability * (1 - probability) / static_cast<double>(signs_.size());
    const double* input = &inputs_[k * x.size()];
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < x.size(); ++j) result.at(i, j) += weight * input[i] * input[j];
    }
  }
  for (std::size_t i = 0; i < x.size(); ++i) result.at(i, i) += regularisation_;
  return result;
}

// Newton's method with halved steps until the gradient no longer gets smaller, which is where rounding ends it.
void LogisticProblem::find_optimum(std::size_t dimension) {
  optimum_.assign(dimension, 0.0);
  std::vector<double> step(dimension);
  constexpr int kSteps = 100;
  for (int iteration = 0; iteration < kSteps; ++iteration) {
    const double before = slope_at_optimum();
    gradient(optimum_, 0, dimension, step);
    solve_positive_definite(hessian(optimum_), step);
    const std::vector<double> from = optimum_;
    double scale = 1;
    do {
      for (std::size_t i = 0; i < dimension; ++i) optimum_[i] = from[i] - scale * step[i];
      scale /= 2;
    } while (slope_at_optimum() >= before && scale > 1e-4);
    if (slope_at_optimum() >= before) {
      optimum_ = from;
      break;
    }
  }
  const double slope = slope_at_optimum();
  STARLING_CHECK(slope < 1e-12 * std::max(1.0, curvature_.largest), fmt::format("the gradient at the optimum is {}", slope));
}

const std::vector<std::string>& problem_names() {
  static const std::vector<std::string> kNames{"quadratic", "laplace", "logistic"};
  return kNames;
}

std::unique_ptr<Problem> make_problem(const ProblemOptions& options) {
  check_range("the dimension", static_cast<double>(options.dimension), 1, static_cast<double>(kLargestDimension));
  if (options.name == "laplace") {
    return std::make_unique<QuadraticProblem>(laplace_matrix(options.dimension),
                                              draw_normals(options.dimension, options.seed, "converge optimum"));
  }
  if (options.name != "quadratic" && options.name != "logistic") {
    throw UserError(fmt::format("there is no problem '{}'; there are {}.{}", options.name, fmt::join(problem_names(), ", "),
                                nearest_name_hint(options.name, problem_names())));
  }
  if (!(options.coupling >= 0 && options.coupling < 1)) {
    throw UserError(
        fmt::format("the coupling is {}, but it must be at least 0 and below 1: from 1 on no contraction in the max-norm is certain",
                    options.coupling));
  }
  if (options.name == "quadratic") {
    check_range("the condition", options.condition, 1, 1e6);
    return std::make_unique<QuadraticProblem>(draw_dominant_matrix(options),
                                              draw_normals(options.dimension, options.seed, "converge optimum"));
  }
  check_range("the regularisation", options.regularisation, 1e-6, 1e3);
  check_range("the number of samples", static_cast<double>(options.samples), 1, 100000);
  return draw_logistic(options);
}

}  // namespace starling::lab
