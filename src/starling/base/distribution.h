// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A distribution of times, as configurations name it: "30ms", "gauss:30ms:5ms", "lognormal:30ms:5ms", "exponential:5ms".
#pragma once

#include <string>
#include <string_view>

#include "starling/base/random.h"
#include "starling/base/time.h"

namespace starling {

struct Distribution {
  enum class Kind { constant, gauss, lognormal, exponential };

  Kind kind = Kind::constant;
  double mean_seconds = 0;
  double deviation_seconds = 0;  // Used by gauss and lognormal: the deviation of the value itself, not of its logarithm.

  static Distribution constant(Duration value) { return {Kind::constant, to_seconds(value), 0}; }
  static Distribution gauss(Duration mean, Duration deviation) { return {Kind::gauss, to_seconds(mean), to_seconds(deviation)}; }
  static Distribution lognormal(Duration mean, Duration deviation) { return {Kind::lognormal, to_seconds(mean), to_seconds(deviation)}; }
  static Distribution exponential(Duration mean) { return {Kind::exponential, to_seconds(mean), 0}; }

  // Reads the forms above; throws UserError naming `what`.
  static Distribution parse(std::string_view text, std::string_view what);

  // True when every sample is zero, so that nothing has to be drawn.
  bool is_zero() const { return mean_seconds == 0 && deviation_seconds == 0; }

  // A sample in seconds, never negative: a Gaussian is clipped at 0. A constant draws nothing from the stream.
  double sample(RandomStream& stream) const;

  // The form that parse() reads.
  std::string text() const;
};

}  // namespace starling
