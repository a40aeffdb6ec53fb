// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "starling/base/sha256.h"

namespace starling::run {
namespace {

constexpr std::size_t kEvaluationBatch = 256;

compute::Evaluation evaluate_range(compute::Replica& replica, const data::Samples& samples, std::size_t begin, std::size_t end,
                                   std::span<std::int32_t> predictions, const std::function<void()>& each_batch = {}) {
  std::vector<std::uint32_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
  compute::Evaluation sum;
  for (std::size_t first = 0; first < indices.size(); first += kEvaluationBatch) {
    const std::size_t count = std::min(kEvaluationBatch, indices.size() - first);
    const data::Batch batch{.samples = &samples, .indices = std::span(indices).subspan(first, count)};
    sum += replica.evaluate(batch, predictions.empty() ? predictions : predictions.subspan(first, count));
    if (each_batch) each_batch();
  }
  return sum;
}

}  // namespace

compute::Evaluation evaluate(compute::Replica& replica, const data::Samples& samples, std::span<std::int32_t> predictions) {
  return evaluate_range(replica, samples, 0, samples.count, predictions);
}

PartRange part_range(const data::Samples& samples, int parts, int index) {
  const std::size_t batches = (samples.count + kEvaluationBatch - 1) / kEvaluationBatch;
  const auto boundary = [&](int part) {
    return std::min(samples.count, batches * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts) * kEvaluationBatch);
  };
  return {.begin = boundary(index), .end = boundary(index + 1)};
}

compute::Evaluation evaluate_part(compute::Replica& replica, const data::Samples& samples, int parts, int index,
                                  const std::function<void()>& each_batch, std::span<std::int32_t> predictions) {
  const auto [begin, end] = part_range(samples, parts, index);
  return evaluate_range(replica, samples, begin, end, predictions.empty() ? predictions : predictions.subspan(begin, end - begin),
                        each_batch);
}

std::string fingerprint(const data::Dataset& dataset) {
  Sha256 hash;
  const auto add = [&](const auto& values) { hash.add(std::as_bytes(std::span(values))); };
  for (const data::Samples* samples : {&dataset.train, &dataset.test}) {
    add(samples->labels);
    add(samples->targets);
    add(samples->standardisation);  // Mean and deviation change with almost any input.
  }
  constexpr std::size_t kDigits = 16;
  return fmt::format("{} samples, {} to test, sum {}", dataset.train.count, dataset.test.count, hash.hex_digest().substr(0, kDigits));
}

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t found = 0;  // Without a branch, so that the compiler makes vectors of it.
  for (const float value : values) found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent);
  return found == 0;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

}  // namespace starling::run
