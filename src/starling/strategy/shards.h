// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The flat vector split over servers: as evenly as possible, in order.
#pragma once

#include <cstddef>

#include "starling/params/layout.h"

namespace starling::strategy {

// The part of a layout from `begin` on, as a layout of its own. A slice that is cut keeps its whole rows as a matrix; pieces of rows before
// and after become slices of one dimension.
params::Layout part_of(const params::Layout& layout, std::size_t begin, std::size_t size);

// All parameters, without buffers.
params::Layout parameters_of(const params::Layout& layout);

}  // namespace starling::strategy
