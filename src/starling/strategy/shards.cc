// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/shards.h"

#include <algorithm>
#include <string>

namespace starling::strategy {
namespace {

// Adds the elements first … last - 1 of a slice.
void add_piece(params::Layout& part, const params::Slice& slice, std::size_t first, std::size_t last) {
  if (first == 0 && last == slice.size) {
    part.add(slice.name, slice.shape);
    return;
  }
  const auto extent = [](std::size_t size) { return static_cast<std::int64_t>(size); };
  const std::size_t row = slice.size / static_cast<std::size_t>(slice.shape[0]);
  const std::size_t first_whole = std::min(last, (first + row - 1) / row * row);
  const std::size_t last_whole = std::max(first_whole, last / row * row);
  if (first_whole > first) part.add(slice.name + " begin", {extent(first_whole - first)});
  if (last_whole > first_whole) {
    std::vector<std::int64_t> shape = slice.shape;
    shape[0] = extent((last_whole - first_whole) / row);
    part.add(slice.name + " rows", std::move(shape));
  }
  if (last > last_whole) part.add(slice.name + " end", {extent(last - last_whole)});
}

}  // namespace

params::Layout part_of(const params::Layout& layout, std::size_t begin, std::size_t size) {
  params::Layout part;
  const std::size_t end = begin + size;
  for (const params::Slice& slice : layout.slices()) {
    const std::size_t first = std::max(begin, slice.offset);
    const std::size_t last = std::min(end, slice.offset + slice.size);
    if (first < last) add_piece(part, slice, first - slice.offset, last - slice.offset);
  }
  return part;
}

params::Layout parameters_of(const params::Layout& layout) { return part_of(layout, 0, layout.parameter_count()); }

}  // namespace starling::strategy
