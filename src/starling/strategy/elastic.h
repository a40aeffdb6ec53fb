// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the elastic averaging methods share: the options for α, and its value.
#pragma once

#include <string>
#include <vector>

#include "starling/strategy/settings.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

// alpha, rho and beta. `parties` is how many pull at the centre, as text: "P".
std::vector<Option> elastic_options(const std::string& parties);

// α of w_j ← w_j − α (w_j − w̃): given directly, or lr × rho, or beta / P.
float elastic_alpha(const Settings& settings, double lr, int workers);

}  // namespace starling::strategy
