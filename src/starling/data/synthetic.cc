// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/synthetic.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>

#include "starling/base/error.h"
#include "starling/base/portable_math.h"
#include "starling/base/random.h"

namespace starling::data {
namespace {

constexpr std::uint64_t kGroup = 4;  // Copies of one input in `logistic`.

Samples empty_samples(std::uint64_t samples, std::uint64_t dimension) {
  STARLING_CHECK(samples > 0 && dimension > 0, std::string("a data set has samples, and they have inputs"));
  Samples result;
  result.shape = {.channels = 1, .height = 1, .width = static_cast<int>(dimension)};
  result.count = static_cast<std::size_t>(samples);
  result.floats.reserve(result.count * result.shape.size());
  result.standardisation = {Standardisation{}};
  return result;
}

std::vector<float> draw_normals(std::uint64_t count, std::uint64_t seed, std::string_view purpose) {
  RandomStream stream(seed, 0, purpose);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(stream.normal());
  return values;
}

double dot(const float* a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

Samples draw_blobs(const BlobsOptions& options, const std::vector<float>& centres, std::string_view purpose) {
  RandomStream stream(options.seed, 0, purpose);
  Samples samples = empty_samples(options.samples, options.dimension);
  samples.classes = static_cast<int>(options.classes);
  for (std::uint64_t i = 0; i < options.samples; ++i) {
    const std::uint64_t label = i % options.classes;
    samples.labels.push_back(static_cast<std::int32_t>(label));
    for (std::uint64_t j = 0; j < options.dimension; ++j) {
      const double centre = static_cast<double>(centres[label * options.dimension + j]);
      samples.floats.push_back(static_cast<float>(centre + options.spread * stream.normal()));
    }
  }
  return samples;
}

// The inputs are the first columns of a Sylvester-Hadamard matrix, +1 or -1 with any two columns orthogonal, each column scaled. Rows come
// in pairs with opposite noise, which therefore moves the optimum nowhere.
Samples draw_quadratic(const QuadraticOptions& options, const std::vector<float>& scales, const std::vector<float>& answer,
                       std::string_view purpose) {
  RandomStream stream(options.seed, 0, purpose);
  Samples samples = empty_samples(options.samples, options.dimension);
  samples.outputs = 1;
  const std::uint64_t order = std::bit_ceil(options.dimension);
  for (std::uint64_t pair = 0; pair < options.samples / 2; ++pair) {
    const std::uint64_t row = pair % order;
    const double noise = options.noise * stream.normal();
    for (const double signed_noise : {noise, -noise}) {
      for (std::uint64_t column = 0; column < options.dimension; ++column) {
        const bool negative = std::popcount(row & column) % 2 == 1;
        samples.floats.push_back(negative ? -scales[column] : scales[column]);
      }
      const double exact = dot(&samples.floats[samples.floats.size() - answer.size()], answer);
      samples.targets.push_back(static_cast<float>(exact + signed_noise));
    }
  }
  return samples;
}

// Every input appears kGroup times, k of them in class 1, and lies where the answer predicts exactly the probability k / kGroup: then the
// gradient of each group is zero at the answer.
Samples draw_logistic(const LogisticOptions& options, const std::vector<float>& answer, std::string_view purpose) {
  RandomStream stream(options.seed, 0, purpose);
  Samples samples = empty_samples(options.samples, options.dimension);
  samples.classes = 2;
  const double square = dot(answer.data(), answer);
  std::vector<float> input(answer.size());
  for (std::uint64_t group = 0; group < options.samples / kGroup; ++group) {
    for (float& value : input) value = static_cast<float>(stream.normal());
    const std::uint64_t ones = 1 + stream.below(kGroup - 1);
    const double logit = portable_log(static_cast<double>(ones) / static_cast<double>(kGroup - ones));
    const double along = (logit - dot(input.data(), answer)) / square;
    for (std::size_t j = 0; j < input.size(); ++j) {
      input[j] = static_cast<float>(static_cast<double>(input[j]) + along * static_cast<double>(answer[j]));
    }
    for (std::uint64_t copy = 0; copy < kGroup; ++copy) {
      samples.floats.insert(samples.floats.end(), input.begin(), input.end());
      samples.labels.push_back(copy < ones ? 1 : 0);
    }
  }
  return samples;
}

// Column scales that give the Hessian 2/n XᵀX its eigenvalues.
std::vector<float> quadratic_scales(const QuadraticOptions& options) {
  std::vector<float> scales;
  const double range = portable_log(options.condition);
  const double last = static_cast<double>(options.dimension > 1 ? options.dimension - 1 : 1);
  for (std::uint64_t j = 0; j < options.dimension; ++j) {
    const double eigenvalue = portable_exp(-range * static_cast<double>(j) / last);
    scales.push_back(static_cast<float>(std::sqrt(eigenvalue / 2)));
  }
  return scales;
}

std::vector<std::string> numbered(std::string_view stem, std::uint64_t count) {
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) names.push_back(fmt::format("{}{}", stem, i));
  return names;
}

}  // namespace

Dataset make_blobs(const BlobsOptions& options) {
  Dataset dataset;
  dataset.known_answer = draw_normals(options.classes * options.dimension, options.seed, "blobs centres");
  dataset.train = draw_blobs(options, dataset.known_answer, "blobs train");
  dataset.test = draw_blobs(options, dataset.known_answer, "blobs test");
  dataset.class_names = numbered("blob ", options.classes);
  return dataset;
}

Dataset make_quadratic(const QuadraticOptions& options) {
  const std::uint64_t multiple = 2 * std::bit_ceil(options.dimension);
  if (options.samples == 0 || options.samples % multiple != 0) {
    throw UserError(fmt::format("'samples' of quadratic is {}, but with dimension {} it must be a multiple of {}, as in samples={}",
                                options.samples, options.dimension, multiple, (options.samples / multiple + 1) * multiple));
  }
  Dataset dataset;
  dataset.known_answer = draw_normals(options.dimension, options.seed, "quadratic answer");
  const std::vector<float> scales = quadratic_scales(options);
  dataset.train = draw_quadratic(options, scales, dataset.known_answer, "quadratic train");
  dataset.test = draw_quadratic(options, scales, dataset.known_answer, "quadratic test");
  return dataset;
}

Dataset make_logistic(const LogisticOptions& options) {
  if (options.samples % kGroup != 0 || options.samples < kGroup * options.dimension) {
    throw UserError(fmt::format("'samples' of logistic is {}, but with dimension {} it must be a multiple of {} and at least {}",
                                options.samples, options.dimension, kGroup, kGroup * options.dimension));
  }
  Dataset dataset;
  dataset.known_answer = draw_normals(options.dimension, options.seed, "logistic answer");
  dataset.train = draw_logistic(options, dataset.known_answer, "logistic train");
  dataset.test = draw_logistic(options, dataset.known_answer, "logistic test");
  dataset.class_names = {"0", "1"};
  return dataset;
}

}  // namespace starling::data
