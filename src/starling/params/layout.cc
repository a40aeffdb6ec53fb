// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/params/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "starling/base/error.h"

namespace starling::params {

const Slice& Layout::add(std::string name, std::vector<std::int64_t> shape, SliceKind kind) {
  STARLING_CHECK(find(name) == nullptr, fmt::format("two slices are called '{}'", name));
  STARLING_CHECK(kind == SliceKind::buffer || size_ == parameter_count_, fmt::format("the parameter '{}' comes after a buffer", name));
  constexpr std::size_t kMost = std::size_t{1} << 48;  // Floats; far beyond any memory, and safe to multiply.
  std::size_t size = 1;
  for (const std::int64_t extent : shape) {
    STARLING_CHECK(extent > 0 && static_cast<std::uint64_t>(extent) <= kMost / size,
                   fmt::format("the slice '{}' has the shape {}", name, shape));
    size *= static_cast<std::size_t>(extent);
  }
  slices_.push_back({.name = std::move(name), .shape = std::move(shape), .offset = size_, .size = size, .kind = kind});
  size_ += size;
  if (kind == SliceKind::parameter) parameter_count_ = size_;
  return slices_.back();
}

const Slice* Layout::find(const std::string& name) const {
  const auto found = std::find_if(slices_.begin(), slices_.end(), [&](const Slice& slice) { return slice.name == name; });
  return found == slices_.end() ? nullptr : &*found;
}

std::string describe(const Slice& slice) {
  return fmt::format("{}{} {}", slice.kind == SliceKind::buffer ? "buffer " : "", slice.name, slice.shape);
}

std::string difference(const Layout& expected, const Layout& actual) {
  const std::size_t common = std::min(expected.slices().size(), actual.slices().size());
  for (std::size_t i = 0; i < common; ++i) {
    const Slice& left = expected.slices()[i];
    const Slice& right = actual.slices()[i];
    if (left != right) return fmt::format("tensor {} should be {} but is {}", i + 1, describe(left), describe(right));
  }
  if (expected.slices().size() > common) return fmt::format("{} is missing", describe(expected.slices()[common]));
  if (actual.slices().size() > common) return fmt::format("{} is too many", describe(actual.slices()[common]));
  return "";
}

}  // namespace starling::params
