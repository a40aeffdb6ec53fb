// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Going on from a checkpoint with another number of workers.
//
//   Checkpoint checkpoint = with_other_workers(store.read("latest"), before, now, description);
//
// What goes on: the weights, the state of optimisers, the place in the epoch, all totals. What a worker has of its own cannot be dealt to
// more or fewer of them, so only strategies allow it whose workers have nothing of their own (Description::resumes_with_other_workers),
// and only as long as the checkpoint shows that they have not.
#pragma once

#include "starling/run/checkpoint.h"
#include "starling/run/run_config.h"
#include "starling/strategy/registry.h"

namespace starling::run {

// The strategies of a registry that allow it: "sync, async, ...".
std::string resuming_strategies(const strategy::Registry& registry);

// The checkpoint as that of a run with the workers of `now`. Its ledger is still that of the run before. Throws UserError, with the reason,
// where the strategy, the state of the workers or their places in the epoch do not allow it.
Checkpoint with_other_workers(const Checkpoint& checkpoint, const RunConfig& before, const RunConfig& now,
                              const strategy::Registry& registry);

// "rank3/optimizer/momentum" is 3 and "optimizer/momentum"; the rank is -1 if it is none of `ranks`.
std::pair<int, std::string> split_rank(const std::string& name, int ranks);

}  // namespace starling::run
