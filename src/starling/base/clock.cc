// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/clock.h"

#include <chrono>

namespace starling {

double unix_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace starling
