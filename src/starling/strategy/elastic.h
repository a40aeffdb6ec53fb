// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the elastic averaging methods share: the options for α, and its value.
#pragma once

#include <vector>

#include "starling/strategy/settings.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

// alpha, rho and beta.
std::vector<Option> elastic_options();

// α of w_j ← w_j − α (w_j − w̃): given directly, or lr × rho, or beta / P.
float elastic_alpha(const Settings& settings, double lr, int workers);

}  // namespace starling::strategy
