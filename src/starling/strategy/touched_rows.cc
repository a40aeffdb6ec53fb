// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/touched_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "starling/base/error.h"

namespace starling::strategy {

TouchedRows::TouchedRows(const params::Layout& layout) {
  for (const params::Slice& slice : layout.slices()) {
    if (slice.kind != params::SliceKind::parameter) continue;
    const std::size_t row = slice.shape.size() > 1 ? slice.size / static_cast<std::size_t>(slice.shape[0]) : kPieceFloats;
    for (std::size_t end = row; end < slice.size; end += row) ends_.push_back(slice.offset + end);
    ends_.push_back(slice.offset + slice.size);
  }
}

std::span<const Range> TouchedRows::of(std::span<const float> update) {
  const std::size_t size = ends_.empty() ? 0 : ends_.back();
  STARLING_CHECK(update.size() == size, fmt::format("an update of {} floats for a layout of {}", update.size(), size));
  touched_.clear();
  std::size_t begin = 0;
  for (const std::size_t end : ends_) {
    const std::span<const float> row = update.subspan(begin, end - begin);
    if (std::any_of(row.begin(), row.end(), [](float value) { return value != 0; })) {
      if (!touched_.empty() && touched_.back().begin + touched_.back().size == begin) {
        touched_.back().size += row.size();
      } else {
        touched_.push_back({begin, row.size()});
      }
    }
    begin = end;
  }
  return touched_;
}

}  // namespace starling::strategy
