// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace starling::bench {

// Floating-point operations per second of one core, in a loop of nothing but fused multiply-adds on registers.
double fma_peak();

}  // namespace starling::bench
