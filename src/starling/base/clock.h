// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The clock on the wall, for what people look at, such as when a line of a log was written. Nothing that is computed may depend on it;
// ranks ask their endpoint for the time, and base/stopwatch.h says how long something took.
#pragma once

namespace starling {

// Seconds since the beginning of 1970.
double unix_seconds();

}  // namespace starling
