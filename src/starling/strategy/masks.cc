// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/masks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "starling/base/error.h"

namespace starling::strategy {

Mask::Mask(std::vector<std::uint32_t> indices, std::vector<float> values)
    : size_(indices.size()), indices_(std::move(indices)), values_(std::move(values)) {
  STARLING_CHECK(values_.size() == size_, fmt::format("a mask has {} indices and {} values", size_, values_.size()));
  for (std::size_t i = 0; i < size_; ++i) {
    STARLING_CHECK(i == 0 || indices_[i - 1] < indices_[i],
                   fmt::format("in a mask component {} comes after component {}", indices_[i], indices_[i - 1]));
    STARLING_CHECK(values_[i] > 0 && values_[i] <= 1, fmt::format("a mask has the value {} for component {}", values_[i], indices_[i]));
    if (values_[i] < 1) shared_.push_back(static_cast<std::uint32_t>(i));
  }
}

Mask Mask::uniform(std::size_t size, float value) {
  STARLING_CHECK(value > 0 && value <= 1, fmt::format("a mask has the value {} for every component", value));
  Mask mask;
  mask.all_ = true;
  mask.value_ = value;
  mask.size_ = size;
  return mask;
}

void Mask::check_sizes(std::size_t part, std::size_t model) const {
  STARLING_CHECK(part == size_ && (size_ == 0 || index(size_ - 1) < model),
                 fmt::format("a part of {} floats and a model of {} for a mask of {}", part, model, size_));
}

void Mask::take(std::span<const float> model, std::span<float> part) const {
  check_sizes(part.size(), model.size());
  if (all_) {
    std::copy_n(model.begin(), size_, part.begin());
    return;
  }
  for (std::size_t i = 0; i < size_; ++i) part[i] = model[indices_[i]];
}

void Mask::place(std::span<const float> part, std::span<float> model) const {
  check_sizes(part.size(), model.size());
  if (all_) {
    if (value_ == 1) std::copy(part.begin(), part.end(), model.begin());
    return;
  }
  for (std::size_t i = 0; i < size_; ++i) {
    if (values_[i] == 1) model[indices_[i]] = part[i];
  }
}

void Mask::take_shared(std::span<const float> model, std::span<float> shared_values) const {
  for (std::size_t i = 0; i < shared_values.size(); ++i) shared_values[i] = model[index(shared(i))];
}

void Mask::copy_shared(std::span<const float> part, std::span<float> shared_values) const {
  for (std::size_t i = 0; i < shared_values.size(); ++i) shared_values[i] = part[shared(i)];
}

void Mask::write_shared(std::span<const float> shared_values, std::span<float> part) const {
  for (std::size_t i = 0; i < shared_values.size(); ++i) part[shared(i)] = shared_values[i];
}

Masks::Masks(std::size_t size, std::vector<Mask> masks) : masks_(std::move(masks)), has_owner_(size) {
  STARLING_CHECK(size > 0 && !masks_.empty(), std::string("masks need a model and a worker"));
  std::vector<double> sums(size);
  for (std::size_t worker = 0; worker < masks_.size(); ++worker) {
    const Mask& mask = masks_[worker];
    STARLING_CHECK(mask.size() == 0 || mask.index(mask.size() - 1) < size,
                   fmt::format("the mask of worker {} goes beyond the {} components of the model", worker, size));
    for (std::size_t i = 0; i < mask.size(); ++i) sums[mask.index(i)] += static_cast<double>(mask.value(i));
  }
  // Every value has been rounded to a float, by half a unit in its last place at most.
  const double tolerance = static_cast<double>(std::numeric_limits<float>::epsilon());
  for (std::size_t component = 0; component < size; ++component) {
    if (sums[component] == 0) continue;
    STARLING_CHECK(std::abs(sums[component] - 1) <= tolerance,
                   fmt::format("the masks of component {} add up to {}, not to 1", component, sums[component]));
    has_owner_[component] = 1;
    ++owned_;
  }
}

Masks Masks::uniform(std::size_t size, int workers) {
  return Masks(size, std::vector<Mask>(static_cast<std::size_t>(workers), Mask::uniform(size, static_cast<float>(1.0 / workers))));
}

void Masks::merge(std::span<const std::vector<float>> parts, std::span<float> model) const {
  STARLING_CHECK(parts.size() == masks_.size(), fmt::format("{} parts for {} masks", parts.size(), masks_.size()));
  for (std::size_t worker = 0; worker < parts.size(); ++worker) masks_[worker].place(parts[worker], model);
  mix(parts, model);
}

void Masks::mix(std::span<const std::vector<float>> parts, std::span<float> model) const {
  STARLING_CHECK(parts.size() == masks_.size() && model.size() == size(),
                 fmt::format("{} parts for {} masks, and a model of {} for one of {}", parts.size(), masks_.size(), model.size(), size()));
  // Minus zero: adding to it changes nothing, not even a sign.
  for (const Mask& mask : masks_) {
    for (std::size_t i = 0; i < mask.shared_size(); ++i) model[mask.index(mask.shared(i))] = -0.0F;
  }
  for (std::size_t worker = 0; worker < parts.size(); ++worker) {
    const Mask& mask = masks_[worker];
    STARLING_CHECK(parts[worker].size() == mask.size(),
                   fmt::format("a part of {} floats for a mask of {}", parts[worker].size(), mask.size()));
    for (std::size_t i = 0; i < mask.shared_size(); ++i) {
      const std::size_t position = mask.shared(i);
      model[mask.index(position)] += mask.value(position) * parts[worker][position];
    }
  }
}

void Masks::clear_unowned(std::span<float> model) const {
  for (std::size_t component = 0; component < size(); ++component) {
    if (has_owner_[component] == 0) model[component] = 0;
  }
}

}  // namespace starling::strategy
