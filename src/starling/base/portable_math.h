// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Logarithm and exponential from IEEE additions, multiplications and divisions alone. The C library picks a variant of its own
// by the processor it finds, and the variants differ in the last bit; these give the same bits everywhere, which the random
// streams and with them the simulator's promise of identical runs depend on. Error below 2 units in the last place.
#pragma once

namespace starling {

// Natural logarithm of a finite, normal x > 0.
double portable_log(double x);

// e to the power x; 0 below -700, infinity above 709.
double portable_exp(double x);

}  // namespace starling
