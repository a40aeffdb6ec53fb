// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Sets of numbers as ascending ranges that do not touch (the form of params::NumberSet::ranges()), for the sums at the end of a run: their
// cost depends on the number of gaps, not on the number of updates.
#pragma once

#include <cstdint>
#include <vector>

#include "starling/params/version_vector.h"

namespace starling::ledger {

using Ranges = std::vector<params::NumberSet::Range>;

Ranges in_both(const Ranges& a, const Ranges& b);
Ranges in_either(const Ranges& a, const Ranges& b);
Ranges without(const Ranges& a, const Ranges& b);  // What is in a but not in b.
std::uint64_t count(const Ranges& ranges);

}  // namespace starling::ledger
