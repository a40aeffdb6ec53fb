// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/staleness_lr.h"

#include <algorithm>

namespace starling::strategy {

Option staleness_lr_option(const std::string& standard) {
  return Option::choice("staleness_lr", standard, {"none", "inverse", "inverse-plus-one"},
                        "makes the step of a stale update smaller: by nothing, by 1/max(1, staleness), or by 1/(staleness + 1)");
}

double staleness_scale(const std::string& rule, std::uint64_t staleness) {
  if (rule == "inverse") return 1 / std::max(1.0, static_cast<double>(staleness));
  if (rule == "inverse-plus-one") return 1 / (static_cast<double>(staleness) + 1);
  return 1;
}

}  // namespace starling::strategy
