// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/subnets.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/collective/collective.h"

namespace starling::strategy {
namespace {

constexpr const char* kHint = "try --model mlp:784-1000-1000-10";

std::size_t extent(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

Subnets::Subnets(const params::Layout& layout, int workers, std::uint64_t seed) : layout_(layout), workers_(workers), seed_(seed) {
  STARLING_CHECK(workers >= 1, fmt::format("a model is cut for {} workers", workers));
  for (std::size_t i = 0; i < layout_.slices().size(); ++i) add_slice(i);
  check_hidden_layers();
}

void Subnets::add_slice(std::size_t index) {
  const params::Slice& slice = layout_.slices()[index];
  if (slice.kind == params::SliceKind::buffer) {
    throw UserError(
        fmt::format("subnets cannot be merged where a model has running statistics, as '{}': write 'batchnorm batch' in place of "
                    "'batchnorm'",
                    slice.name));
  }
  if (slice.shape.size() == 2) {
    const std::size_t rows = extent(slice.shape[0]);
    const std::size_t columns = extent(slice.shape[1]);
    if (units_.empty()) units_.push_back(columns);
    if (units_.back() != columns) {
      throw UserError(fmt::format("the model cannot be cut into subnets: {} does not take the {} outputs of the layer before it; {}",
                                  params::describe(slice), units_.back(), kHint));
    }
    units_.push_back(rows);
    grids_.push_back({.slice = index, .row_layer = units_.size() - 1, .column_layer = units_.size() - 2, .rows = rows, .columns = columns});
    return;
  }
  // A vector before the first weight belongs to the inputs, whatever its size: one number per channel.
  const bool of_layer = slice.shape.size() == 1 && (units_.empty() || extent(slice.shape[0]) == units_.back());
  if (!of_layer) {
    throw UserError(fmt::format("the model cannot be cut into subnets: {} is no part of a perceptron (dense layers and norms); {}",
                                params::describe(slice), kHint));
  }
  grids_.push_back({.slice = index,
                    .row_layer = units_.empty() ? 0 : units_.size() - 1,
                    .column_layer = 0,
                    .rows = extent(slice.shape[0]),
                    .columns = 1});
}

void Subnets::check_hidden_layers() const {
  if (workers_ == 1) return;
  if (units_.size() < 3)
    throw UserError(fmt::format("the model has no hidden layer whose units could be dealt to {} workers; {}", workers_, kHint));
  for (std::size_t layer = 1; layer + 1 < units_.size(); ++layer) {
    if (units_[layer] >= static_cast<std::size_t>(workers_)) continue;
    throw UserError(fmt::format("hidden layer {} has {} units, too few for {} workers: take fewer workers or a wider model", layer,
                                units_[layer], workers_));
  }
}

std::vector<int> Subnets::widths(int worker) const {
  std::vector<int> result;
  for (std::size_t layer = 1; layer + 1 < units_.size(); ++layer) {
    result.push_back(static_cast<int>(collective::slice_of(units_[layer], workers_, worker).size));
  }
  return result;
}

params::Layout Subnets::part_layout(int worker) const {
  const std::vector<int> hidden = widths(worker);
  const auto width = [&](std::size_t layer, std::size_t whole) {
    return static_cast<std::int64_t>(is_hidden(layer) ? static_cast<std::size_t>(hidden[layer - 1]) : whole);
  };
  params::Layout part;
  for (const Grid& grid : grids_) {
    const params::Slice& slice = layout_.slices()[grid.slice];
    std::vector<std::int64_t> shape{width(grid.row_layer, grid.rows)};
    if (slice.shape.size() == 2) shape.push_back(width(grid.column_layer, grid.columns));
    part.add(slice.name, std::move(shape));
  }
  return part;
}

// Every layer has a stream of its own, in which every round has its place.
std::vector<Subnets::Hands> Subnets::deal_units(std::uint64_t round) const {
  std::vector<Hands> hands(static_cast<std::size_t>(workers_), Hands(units_.size()));
  for (std::size_t layer = 1; layer + 1 < units_.size(); ++layer) {
    std::vector<std::uint32_t> order(units_[layer]);
    std::iota(order.begin(), order.end(), 0U);
    RandomStream random(seed_, static_cast<std::uint32_t>(layer), "subnets deal");
    constexpr unsigned kWordsPerRound = 30;  // More than the units of any layer could need.
    random.seek(round << kWordsPerRound);
    for (std::size_t i = 0; i + 1 < order.size(); ++i) std::swap(order[i], order[i + random.below(order.size() - i)]);
    for (int worker = 0; worker < workers_; ++worker) {
      const collective::Slice slice = collective::slice_of(order.size(), workers_, worker);
      std::vector<std::uint32_t>& hand = hands[static_cast<std::size_t>(worker)][layer];
      hand.assign(order.begin() + static_cast<std::ptrdiff_t>(slice.begin),
                  order.begin() + static_cast<std::ptrdiff_t>(slice.begin + slice.size));
      std::sort(hand.begin(), hand.end());
    }
  }
  return hands;
}

Mask Subnets::mask_of(const Hands& hands) const {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  const auto for_units = [&](std::size_t layer, std::size_t whole, const auto& use) {
    if (is_hidden(layer)) {
      for (const std::uint32_t unit : hands[layer]) use(unit);
    } else {
      for (std::size_t unit = 0; unit < whole; ++unit) use(unit);
    }
  };
  for (const Grid& grid : grids_) {
    const std::size_t offset = layout_.slices()[grid.slice].offset;
    const bool owned = is_hidden(grid.row_layer) || is_hidden(grid.column_layer);
    const float value = owned ? 1 : static_cast<float>(1.0 / workers_);
    for_units(grid.row_layer, grid.rows, [&](std::size_t row) {
      for_units(grid.column_layer, grid.columns, [&](std::size_t column) {
        indices.push_back(static_cast<std::uint32_t>(offset + row * grid.columns + column));
        values.push_back(value);
      });
    });
  }
  return Mask(std::move(indices), std::move(values));
}

Mask Subnets::mask(int worker, std::uint64_t round) const { return mask_of(deal_units(round)[static_cast<std::size_t>(worker)]); }

Masks Subnets::deal(std::uint64_t round) const {
  std::vector<Mask> masks;
  for (const Hands& hands : deal_units(round)) masks.push_back(mask_of(hands));
  return Masks(layout_.parameter_count(), std::move(masks));
}

}  // namespace starling::strategy
