// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "starling/base/error.h"
#include "starling/base/portable_math.h"
#include "starling/base/random.h"
#include "starling/base/units.h"
#include "starling/data/shuffle.h"

namespace starling::data {
namespace {

using Indices = std::vector<std::uint32_t>;
using Parts = std::vector<Indices>;

Indices all_indices(const Samples& samples) {
  Indices indices(samples.count);
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

// The samples of each class.
Parts by_class(const Samples& samples, const std::string& specification) {
  if (!samples.has_labels()) {
    throw UserError(
        fmt::format("the partition is '{}', but the samples of this data set have no labels: use none or dataset", specification));
  }
  Parts classes(static_cast<std::size_t>(samples.classes));
  for (std::uint32_t i = 0; i < samples.count; ++i) classes[static_cast<std::size_t>(samples.labels[i])].push_back(i);
  return classes;
}

Parts by_chunks(const Samples& samples, std::size_t workers, RandomStream& stream) {
  if (workers > samples.count) {
    throw UserError(fmt::format("the partition is 'dataset', but {} samples are not enough for {} workers", samples.count, workers));
  }
  Indices indices = all_indices(samples);
  shuffle(std::span(indices), stream);
  Parts parts(workers);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    const auto first = indices.begin() + static_cast<std::ptrdiff_t>(samples.count * worker / workers);
    const auto last = indices.begin() + static_cast<std::ptrdiff_t>(samples.count * (worker + 1) / workers);
    parts[worker].assign(first, last);
  }
  return parts;
}

Parts by_labels(const Samples& samples, std::size_t workers, RandomStream& stream) {
  const Parts classes = by_class(samples, "labels");
  if (workers > classes.size()) {
    throw UserError(
        fmt::format("the partition is 'labels', but {} classes are not enough for {} workers: use at most {} workers, or dataset",
                    classes.size(), workers, classes.size()));
  }
  Indices labels(classes.size());
  std::iota(labels.begin(), labels.end(), 0U);
  shuffle(std::span(labels), stream);
  Parts parts(workers);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    Indices& part = parts[i % workers];
    part.insert(part.end(), classes[labels[i]].begin(), classes[labels[i]].end());
  }
  std::size_t fewest = samples.count;
  for (const Indices& part : parts) fewest = std::min(fewest, part.size());
  if (fewest == 0) throw UserError("the partition is 'labels', but some label has no samples, and its worker would have none: use dataset");
  for (Indices& part : parts) {
    shuffle(std::span(part), stream);
    part.resize(fewest);
  }
  return parts;
}

// The logarithm of a draw from the gamma distribution with this shape, by Marsaglia and Tsang (2000): a logarithm, because for small
// shapes the draws themselves are too small for a double.
double log_gamma_draw(double shape, RandomStream& stream) {
  if (shape < 1) {
    const double boosted = log_gamma_draw(shape + 1, stream);
    return boosted + portable_log(1 - stream.uniform()) / shape;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = stream.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double cube = root * root * root;
    const double log_cube = 3 * portable_log(root);
    if (portable_log(1 - stream.uniform()) < x * x / 2 + d - d * cube + d * log_cube) return portable_log(d) + log_cube;
  }
}

// Shares of `workers`, at least 0 each and 1 together.
std::vector<double> dirichlet_draw(double alpha, std::size_t workers, RandomStream& stream) {
  std::vector<double> shares(workers);
  for (double& share : shares) share = log_gamma_draw(alpha, stream);
  const double largest = *std::max_element(shares.begin(), shares.end());
  double sum = 0;
  for (double& share : shares) sum += share = portable_exp(share - largest);
  for (double& share : shares) share /= sum;
  return shares;
}

Parts by_dirichlet(const Samples& samples, double alpha, const std::string& specification, std::size_t workers, RandomStream& stream) {
  Parts parts(workers);
  for (Indices& members : by_class(samples, specification)) {
    shuffle(std::span(members), stream);
    const std::vector<double> shares = dirichlet_draw(alpha, workers, stream);
    double sum = 0;
    std::size_t first = 0;
    for (std::size_t worker = 0; worker < workers; ++worker) {
      sum += shares[worker];
      const double end = std::floor(sum * static_cast<double>(members.size()) + 0.5);
      const std::size_t last = worker + 1 == workers ? members.size() : std::min(members.size(), static_cast<std::size_t>(end));
      parts[worker].insert(parts[worker].end(), members.begin() + static_cast<std::ptrdiff_t>(first),
                           members.begin() + static_cast<std::ptrdiff_t>(last));
      first = last;
    }
  }
  const auto empty = std::find_if(parts.begin(), parts.end(), [](const Indices& part) { return part.empty(); });
  if (empty != parts.end()) {
    throw UserError(
        fmt::format("the partition '{}' leaves worker {} of {} without samples: use a larger alpha, fewer workers or another seed",
                    specification, empty - parts.begin(), workers));
  }
  return parts;
}

double parse_alpha(const std::string& specification) {
  const std::string text = specification.substr(specification.find(':') + 1);
  const std::optional<Quantity> alpha = parse_quantity(text);
  if (alpha && alpha->unit.empty() && alpha->value >= 1e-3 && alpha->value <= 1e6) return alpha->value;
  throw UserError(fmt::format("the partition is '{}', but alpha is a number from 0.001 to 1000000, as in dirichlet:0.5", specification));
}

Parts split(const Samples& samples, const std::string& specification, std::size_t workers, std::uint64_t seed) {
  RandomStream stream(seed, 0, "partition");
  if (specification == "none" || specification == "shared" || specification == "queue") return Parts(workers, all_indices(samples));
  if (specification == "dataset") return by_chunks(samples, workers, stream);
  if (specification == "labels") return by_labels(samples, workers, stream);
  if (specification == "dirichlet" || specification.starts_with("dirichlet:")) {
    return by_dirichlet(samples, parse_alpha(specification), specification, workers, stream);
  }
  throw UserError(fmt::format(
      "the partition is '{}', but it is one of {}.{}", specification, fmt::join(partition_names(), ", "),
      nearest_name_hint(specification.substr(0, specification.find(':')), {"shared", "queue", "none", "dataset", "labels", "dirichlet"})));
}

}  // namespace

std::vector<std::vector<std::uint32_t>> partition(const Samples& samples, const std::string& specification, int workers,
                                                  std::uint64_t seed) {
  STARLING_CHECK(workers >= 1, fmt::format("{} workers", workers));
  STARLING_CHECK(samples.count > 0 && samples.count <= std::numeric_limits<std::uint32_t>::max(), fmt::format("{} samples", samples.count));
  Parts parts = split(samples, specification, static_cast<std::size_t>(workers), seed);
  for (Indices& part : parts) std::sort(part.begin(), part.end());
  return parts;
}

std::vector<std::uint32_t> hold_out(const Samples& samples, double fraction, std::uint64_t seed) {
  STARLING_CHECK(fraction >= 0 && fraction < 1, fmt::format("a fraction of {} is held out", fraction));
  Indices indices = all_indices(samples);
  const auto count = static_cast<std::size_t>(fraction * static_cast<double>(samples.count));
  RandomStream stream(seed, 0, "validation samples");
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(indices[i], indices[i + static_cast<std::size_t>(stream.below(indices.size() - i))]);
  }
  indices.resize(count);
  std::sort(indices.begin(), indices.end());
  return indices;
}

std::vector<std::string> partition_names() { return {"shared", "queue", "none", "dataset", "labels", "dirichlet:ALPHA"}; }

}  // namespace starling::data
