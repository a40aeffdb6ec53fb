// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/strategy.h"

#include <algorithm>

#include "starling/base/error.h"

namespace starling::strategy {

Status Strategy::peek(std::span<const float> weights, std::span<float> model) {
  std::copy(weights.begin(), weights.end(), model.begin());
  return {};
}

Result<std::optional<Assignment>> Strategy::next_batch() {
  STARLING_CHECK(false, std::string("a strategy without a generator is asked for a batch"));
  return std::optional<Assignment>{};
}

Status Strategy::start_serving() {
  STARLING_CHECK(false, std::string("a strategy without servers is asked to serve"));
  return {};
}

Status Strategy::serve() { return start_serving(); }

}  // namespace starling::strategy
