// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What strategies that mix whole models have in common: which local steps are in a model, and so how stale one is that arrives.
//
//   MixedSteps steps(workers);
//   steps.step(rank);                                            // After every step of the optimiser.
//   channel.send(peer, weights, {.id = id, .contents = steps.contents()});
//   steps.mix(account, incoming.stamp);                          // Enters how stale it was, and what is in the mixture.
#pragma once

#include <cstdint>
#include <vector>

#include "starling/ledger/ledger.h"
#include "starling/params/state.h"
#include "starling/params/version_vector.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

// The local steps that are mixed into a model, with whatever weight. A model that has a step of some worker has all earlier ones of it
// too, because that worker's model had: so a number for every worker says it all, and a mixture has the larger one of each.
class MixedSteps {
 public:
  explicit MixedSteps(int workers) : steps_(static_cast<std::size_t>(workers)) {}

  void step(int worker) { ++steps_[static_cast<std::size_t>(worker)]; }
  params::VersionVector contents() const;

  // Enters the update of this stamp, whose contents are of the model that arrives, as applied here. With A the steps in that model and B
  // those in the one here, it is stale by |A Δ B| in sets, and in versions by the steps that the one here has more, at least 0. Then the
  // one here has both.
  void mix(ledger::Account& account, const params::Stamp& stamp);

  void list_state(params::StateList& state);

 private:
  std::vector<std::uint64_t> steps_;  // By worker.
};

}  // namespace starling::strategy
