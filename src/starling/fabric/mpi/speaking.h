// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Who says why a job has to end. Several processes notice it at the same time; one message is enough.
#pragma once

#include <algorithm>
#include <chrono>

#include "starling/base/time.h"

namespace starling::fabric::mpi {

// What a launcher takes to end the other processes, those of other hosts included: with mpirun, SIGKILL comes two seconds after the first
// has ended, and on other hosts two seconds later.
constexpr Duration kTimeToEnd = std::chrono::seconds(5);

// How much longer than the first the process that speaks as number `order` waits. Not for ever: those before it may be the ones that hang.
inline Duration speaking_delay(int order) {
  return std::min<Duration>(order * Duration(std::chrono::seconds(2)), std::chrono::seconds(10));
}

}  // namespace starling::fabric::mpi
