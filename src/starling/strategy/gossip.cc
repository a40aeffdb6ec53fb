// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/gossip.h"

#include <fmt/format.h>

#include <algorithm>

#include "starling/base/error.h"

namespace starling::strategy {

params::VersionVector MixedSteps::contents() const {
  params::VersionVector result(static_cast<int>(steps_.size()));
  for (std::size_t i = 0; i < steps_.size(); ++i) result[static_cast<int>(i)] = params::NumberSet(steps_[i]);
  return result;
}

void MixedSteps::mix(ledger::Account& account, const params::Stamp& stamp) {
  STARLING_CHECK(
      stamp.contents.origins() == static_cast<int>(steps_.size()),
      fmt::format("rank {} sent a model with steps of {} workers instead of {}", stamp.id.origin, stamp.contents.origins(), steps_.size()));
  std::uint64_t here = 0;
  std::uint64_t there = 0;
  std::uint64_t differing = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::uint64_t arrived = stamp.contents[static_cast<int>(i)].prefix();
    here += steps_[i];
    there += arrived;
    differing += std::max(arrived, steps_[i]) - std::min(arrived, steps_[i]);
    steps_[i] = std::max(steps_[i], arrived);
  }
  account.applied_measured(stamp.id, here - std::min(here, there), differing);
}

void MixedSteps::list_state(params::StateList& state) {
  for (std::size_t i = 0; i < steps_.size(); ++i) state.add(fmt::format("steps_of_{}", i), steps_[i]);
}

}  // namespace starling::strategy
