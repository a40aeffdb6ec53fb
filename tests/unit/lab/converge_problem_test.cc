// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::lab {
namespace {

std::vector<double> draw(std::size_t count, std::uint64_t seed, double size) {
  RandomStream stream(seed, 0, "test");
  std::vector<double> values(count);
  for (double& value : values) value = size * stream.normal();
  return values;
}

TEST(ConvergeMatrix, EigenvaluesOfTheLaplaceMatrixAreTheKnownOnes) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{40}}) {
    SquareMatrix matrix(n);
    for (std::size_t i = 0; i < n; ++i) {
      matrix.at(i, i) = 2;
      if (i > 0) matrix.at(i, i - 1) = matrix.at(i - 1, i) = -1;
    }
    const std::vector<double> eigenvalues = symmetric_eigenvalues(matrix);
    for (std::size_t k = 0; k < n; ++k) {
      const double angle = static_cast<double>(k + 1) * std::numbers::pi / static_cast<double>(n + 1);
      EXPECT_NEAR(eigenvalues[k], 2 - 2 * std::cos(angle), 1e-13) << n << " " << k;
    }
  }
}

TEST(ConvergeMatrix, SolvesWhatItIsGivenAndRefusesWhatIsNotPositive) {
  SquareMatrix matrix(3);
  matrix.values = {4, 1, -1, 1, 3, 0.5, -1, 0.5, 2};
  std::vector<double> x{4 - 2 - 3, 1 - 6 + 1.5, -1 - 1 + 6};  // The product with (1, -2, 3).
  solve_positive_definite(matrix, x);
  EXPECT_NEAR(x[0], 1, 1e-14);
  EXPECT_NEAR(x[1], -2, 1e-14);
  EXPECT_NEAR(x[2], 3, 1e-14);
  matrix.at(2, 2) = -1;
  EXPECT_THROW(solve_positive_definite(matrix, x), BrokenInvariant);
}

TEST(ConvergeProblem, TheGradientAtTheOptimumIsZero) {
  for (const std::string& name : problem_names()) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      for (const std::size_t dimension : {std::size_t{1}, std::size_t{5}, std::size_t{33}}) {
        const auto problem = make_problem({.name = name, .dimension = dimension, .seed = seed});
        EXPECT_EQ(problem->dimension(), dimension);
        EXPECT_LT(problem->slope_at_optimum(), name == "logistic" ? 1e-15 : 1e-300) << name << " seed " << seed;
      }
    }
  }
}

// A plain logistic loss in two variables, and its slope by differences.
TEST(ConvergeProblem, TheLogisticGradientIsTheSlopeOfTheLoss) {
  const std::vector<double> inputs{1, 0.5, -0.3, 2, 0.7, -1.1};
  const std::vector<double> signs{1, -1, -1};
  const LogisticProblem problem(2, inputs, signs, 0.1);
  const auto loss = [&](double a, double b) {
    double sum = 0.05 * (a * a + b * b);
    for (std::size_t k = 0; k < 3; ++k) sum += std::log1p(std::exp(-signs[k] * (a * inputs[2 * k] + b * inputs[2 * k + 1]))) / 3;
    return sum;
  };
  const std::vector<double> x{0.4, -0.9};
  std::vector<double> slope(2);
  problem.gradient(x, 0, 2, slope);
  EXPECT_NEAR(slope[0], (loss(x[0] + 1e-5, x[1]) - loss(x[0] - 1e-5, x[1])) / 2e-5, 1e-9);
  EXPECT_NEAR(slope[1], (loss(x[0], x[1] + 1e-5) - loss(x[0], x[1] - 1e-5)) / 2e-5, 1e-9);
  std::vector<double> second(1);
  problem.gradient(x, 1, 2, second);
  EXPECT_EQ(second[0], slope[1]);
  for (const double shift : {-1e-3, 1e-3}) {
    EXPECT_GT(loss(problem.optimum()[0] + shift, problem.optimum()[1]), loss(problem.optimum()[0], problem.optimum()[1]));
    EXPECT_GT(loss(problem.optimum()[0], problem.optimum()[1] + shift), loss(problem.optimum()[0], problem.optimum()[1]));
  }
}

// The heart of every bound in the max-norm: no step ends further away than step_bounds() says, near the optimum and far from it, for small
// steps and for those that are too large.
TEST(ConvergeProblem, NoGradientStepExceedsItsBounds) {
  for (const std::string& name : problem_names()) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const auto problem = make_problem({.name = name, .dimension = 9, .coupling = 0.8, .samples = 50, .seed = seed});
      for (const double factor : {0.3, 1.0, 1.7, 4.0}) {
        for (const double size : {1e-3, 1.0, 50.0}) {
          const double step_size = factor / problem->largest_diagonal();
          std::vector<double> x = draw(9, seed, size);
          std::vector<double> errors(9);
          for (std::size_t i = 0; i < 9; ++i) errors[i] = std::abs(x[i] - problem->optimum()[i]);
          std::vector<double> bounds(9);
          problem->step_bounds(step_size, errors, 0, 9, bounds);
          std::vector<double> slope(9);
          problem->gradient(x, 0, 9, slope);
          for (std::size_t i = 0; i < 9; ++i) {
            const double after = std::abs(x[i] - step_size * slope[i] - problem->optimum()[i]);
            EXPECT_LE(after, bounds[i] * (1 + 1e-12) + 1e-12 * (1 + size))
                << name << " seed " << seed << " factor " << factor << " size " << size;
          }
        }
      }
    }
  }
}

// The largest row sum over all Hessians that are possible, regularisation I + (1/N) Σ s_k x_k x_kᵀ, by trying every s_k in {0, 1/4}: a row
// sum is convex in them. With one sample the bound must be exactly that.
TEST(ConvergeProblem, TheBoundsOfALogisticProblemCoverEveryPossibleHessian) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const std::size_t samples : {std::size_t{1}, std::size_t{4}}) {
      const std::vector<double> inputs = draw(3 * samples, seed, 1);
      const LogisticProblem problem(3, inputs, std::vector<double>(samples, 1.0), 0.1);
      const double step_size = 0.9 / problem.largest_diagonal();
      std::vector<double> errors = draw(3, seed + 100, 1);
      for (double& error : errors) error = std::abs(error);
      std::vector<double> bounds(3);
      problem.step_bounds(step_size, errors, 0, 3, bounds);
      for (std::size_t i = 0; i < 3; ++i) {
        double largest = 0;
        for (std::size_t vertex = 0; vertex < std::size_t{1} << samples; ++vertex) {
          double sum = 0;
          for (std::size_t j = 0; j < 3; ++j) {
            double hessian = i == j ? 0.1 : 0;
            for (std::size_t k = 0; k < samples; ++k) {
              const double s = (vertex >> k) % 2 == 1 ? 0.25 : 0;
              hessian += s * inputs[3 * k + i] * inputs[3 * k + j] / static_cast<double>(samples);
            }
            sum += std::abs((i == j ? 1 : 0) - step_size * hessian) * errors[j];
          }
          largest = std::max(largest, sum);
        }
        EXPECT_GE(bounds[i], largest * (1 - 1e-12)) << "seed " << seed;
        if (samples == 1) {
          EXPECT_NEAR(bounds[i], largest, 1e-12) << "seed " << seed;
        }
      }
    }
  }
}

TEST(ConvergeProblem, TheBoundsOfAQuadraticAreReached) {
  const auto made = make_problem({.name = "quadratic", .dimension = 6, .seed = 4});
  const auto& problem = dynamic_cast<const QuadraticProblem&>(*made);
  const std::vector<double> ones(6, 1.0);
  std::vector<double> bounds(6);
  problem.step_bounds(0.8, ones, 0, 6, bounds);
  for (std::size_t i = 0; i < 6; ++i) {
    // The error with the signs of row i of I - 0.8 A.
    std::vector<double> x = problem.optimum();
    for (std::size_t j = 0; j < 6; ++j) x[j] += (i == j ? 1 : 0) - 0.8 * problem.matrix().at(i, j) >= 0 ? 1 : -1;
    std::vector<double> slope(1);
    problem.gradient(x, i, i + 1, slope);
    EXPECT_NEAR(std::abs(x[i] - 0.8 * slope[0] - problem.optimum()[i]), bounds[i], 1e-13);
  }
}

TEST(ConvergeProblem, NoStepContractsLessInL2ThanTheCurvatureSays) {
  for (const std::string& name : problem_names()) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const auto problem = make_problem({.name = name, .dimension = 9, .seed = seed});
      const Problem::Curvature curvature = problem->curvature();
      ASSERT_GT(curvature.smallest, 0);
      const double step_size = 2 / (curvature.smallest + curvature.largest);
      const std::vector<double> x = draw(9, seed, 3);
      std::vector<double> slope(9);
      problem->gradient(x, 0, 9, slope);
      double before = 0;
      double after = 0;
      for (std::size_t i = 0; i < 9; ++i) {
        before += std::pow(x[i] - problem->optimum()[i], 2);
        after += std::pow(x[i] - step_size * slope[i] - problem->optimum()[i], 2);
      }
      EXPECT_LE(std::sqrt(after), (1 - step_size * curvature.smallest) * std::sqrt(before) * (1 + 1e-12)) << name << " seed " << seed;
    }
  }
}

TEST(ConvergeProblem, TheQuadraticHasTheConditionAndCouplingItIsAskedFor) {
  const auto made = make_problem({.name = "quadratic", .dimension = 12, .condition = 50, .coupling = 0.3, .seed = 9});
  const SquareMatrix& matrix = dynamic_cast<const QuadraticProblem&>(*made).matrix();
  EXPECT_NEAR(matrix.at(0, 0) / matrix.at(11, 11), 50, 1e-10);
  for (std::size_t i = 0; i < 12; ++i) {
    double rest = 0;
    for (std::size_t j = 0; j < 12; ++j) {
      EXPECT_EQ(matrix.at(i, j), matrix.at(j, i));
      if (i != j) rest += std::abs(matrix.at(i, j));
    }
    EXPECT_LE(rest, 0.3 * matrix.at(i, i) * (1 + 1e-12));
    EXPECT_GT(rest, 0);
  }
}

TEST(ConvergeProblem, RefusesWhatItCannotMake) {
  EXPECT_THROW(make_problem({.name = "quadratik"}), UserError);
  EXPECT_THROW(make_problem({.dimension = 0}), UserError);
  EXPECT_THROW(make_problem({.dimension = kLargestDimension + 1}), UserError);
  EXPECT_THROW(make_problem({.condition = 0.5}), UserError);
  EXPECT_THROW(make_problem({.condition = std::nan("")}), UserError);
  EXPECT_THROW(make_problem({.coupling = 1}), UserError);
  EXPECT_THROW(make_problem({.name = "logistic", .regularisation = 0}), UserError);
  EXPECT_THROW(make_problem({.name = "logistic", .samples = 0}), UserError);
}

}  // namespace
}  // namespace starling::lab
