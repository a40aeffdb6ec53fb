// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/portable_math.h"

#include <cmath>
#include <limits>

namespace starling {
namespace {

// ln 2 in two parts: the first has enough trailing zeros that small multiples of it are exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;

}  // namespace

double portable_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // In [0.5, 1).
  if (mantissa < 0.70710678118654752440) {
    mantissa *= 2;
    --exponent;
  }
  // ln m = 2 artanh((m - 1) / (m + 1)), as a series in s², |s| < 0.172.
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double series = 0;
  for (int k = 12; k >= 1; --k) series = square * (1.0 / (2 * k + 1) + series);
  const double tail = 2 * s * series + exponent * kLn2Low;
  return exponent * kLn2High + (2 * s + tail);
}

double portable_exp(double x) {
  if (x > 709) return std::numeric_limits<double>::infinity();
  if (x < -700) return 0;
  const double multiple = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double rest = (x - multiple * kLn2High) - multiple * kLn2Low;
  double series = 1;
  for (int k = 15; k >= 1; --k) series = 1 + series * rest / k;
  return std::ldexp(series, static_cast<int>(multiple));
}

}  // namespace starling
