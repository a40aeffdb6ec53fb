// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Which parts of a flat update have something to say. Where a model has parameters that a batch does not use (rows of an embedding, units
// that are off), the update of whole rows is 0, and need not be written.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "starling/params/layout.h"

namespace starling::strategy {

struct Range {
  std::size_t begin = 0;
  std::size_t size = 0;

  bool operator==(const Range&) const = default;
};

class TouchedRows {
 public:
  // A row is what the first index of a matrix (or of any slice with more dimensions) selects. A slice of one dimension has rows of
  // kPieceFloats components, the last of what is left.
  explicit TouchedRows(const params::Layout& layout);

  static constexpr std::size_t kPieceFloats = 64;

  // The rows of `update` that are not all 0, in order; neighbours are one range. Good until the next call. Takes no memory after the first
  // calls.
  std::span<const Range> of(std::span<const float> update);

 private:
  std::vector<std::size_t> ends_;  // Of all rows, in order.
  std::vector<Range> touched_;
};

}  // namespace starling::strategy
