// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A random order that is the same on every machine; std::shuffle may differ between standard libraries.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "starling/base/random.h"

namespace starling::data {

// Fisher and Yates: every order is equally likely.
template <class Value>
void shuffle(std::span<Value> values, RandomStream& stream) {
  for (std::size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[stream.below(left)]);
}

}  // namespace starling::data
