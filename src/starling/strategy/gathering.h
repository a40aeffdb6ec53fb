// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Where the workers of a strategy without servers wait for each other: at its start and its end.
#pragma once

#include <cstdint>

#include "starling/base/result.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

// A barrier of all workers, by way of worker 0. Its waits last as long as others compute (Context::patience), and it goes on without those
// that are lost. Fails with peer_lost where worker 0 is.
// `number` is that of the gathering, the same on every worker and larger than that of the one before: so that a message which a fault has
// doubled is not taken for one of the next.
Status wait_for_all(const Context& context, std::uint64_t number);

}  // namespace starling::strategy
