// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Looking at a model: loss and accuracy over a set, and what tells data and weights from others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "starling/compute/replica.h"
#include "starling/data/dataset.h"

namespace starling::run {

// Loss and correct answers over a set. `predictions` is empty or has one element per sample. Allocates once.
compute::Evaluation evaluate(compute::Replica& replica, const data::Samples& samples, std::span<std::int32_t> predictions);

// Part `index` of `parts` that a set is cut into: samples begin, …, end - 1.
struct PartRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};
PartRange part_range(const data::Samples& samples, int parts, int index);

// The same over part `index` of `parts` that the set is cut into; parts begin where batches do, so that the sum over them does not depend
// on their number but for the rounding of the loss.
// `each_batch` is called after every batch. `predictions` is that of the whole set.
compute::Evaluation evaluate_part(compute::Replica& replica, const data::Samples& samples, int parts, int index,
                                  const std::function<void()>& each_batch, std::span<std::int32_t> predictions = {});

// "60000 samples, 10000 to test, …": what tells these data from others of the same name, as when files were exchanged.
std::string fingerprint(const data::Dataset& dataset);

// True if no value is infinite or NaN.
bool all_finite(std::span<const float> values);

// The Euclidean norm.
double norm(std::span<const float> values);

}  // namespace starling::run
