// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The staleness-aware learning rate (Zhang, Gupta, Lian, Liu, "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016): an
// update that was computed on weights which others have moved meanwhile moves them less.
#pragma once

#include <cstdint>
#include <string>

#include "starling/strategy/settings.h"

namespace starling::strategy {

// The option of all strategies that apply updates one by one.
Option staleness_lr_option(const std::string& standard = "inverse");

// What the learning rate of an update is multiplied by, under the value of that option: 1, 1 / max(1, staleness) or 1 / (staleness + 1).
double staleness_scale(const std::string& rule, std::uint64_t staleness);

}  // namespace starling::strategy
