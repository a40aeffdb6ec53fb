// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/portable_math.h"

namespace starling {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string compact(double seconds) { return fmt::format("{:.9g}s", seconds); }

}  // namespace

Distribution Distribution::parse(std::string_view text, std::string_view what) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() == 1) return constant(parse_duration(text, what));
  if (parts[0] == "gauss" && parts.size() == 3) return gauss(parse_duration(parts[1], what), parse_duration(parts[2], what));
  if (parts[0] == "exponential" && parts.size() == 2) return exponential(parse_duration(parts[1], what));
  if (parts[0] == "lognormal" && parts.size() == 3) {
    const Distribution result = lognormal(parse_duration(parts[1], what), parse_duration(parts[2], what));
    if (result.mean_seconds > 0) return result;
    throw UserError(fmt::format("{} is '{}', but the mean of a log-normal time must be above 0", what, text));
  }
  throw UserError(fmt::format(
      "{} is '{}', but a distribution of times is one of 30ms, gauss:30ms:5ms, lognormal:30ms:5ms (mean, deviation), exponential:5ms", what,
      text));
}

double Distribution::sample(RandomStream& stream) const {
  switch (kind) {
    case Kind::constant:
      return mean_seconds;
    case Kind::gauss:
      return std::max(0.0, mean_seconds + deviation_seconds * stream.normal());
    case Kind::lognormal: {
      const double ratio = deviation_seconds / mean_seconds;
      const double variance = portable_log(1 + ratio * ratio);
      return portable_exp(portable_log(mean_seconds) - variance / 2 + std::sqrt(variance) * stream.normal());
    }
    case Kind::exponential:
      return -mean_seconds * portable_log(1 - stream.uniform());
  }
  return 0;
}

std::string Distribution::text() const {
  switch (kind) {
    case Kind::constant:
      return compact(mean_seconds);
    case Kind::gauss:
      return fmt::format("gauss:{}:{}", compact(mean_seconds), compact(deviation_seconds));
    case Kind::lognormal:
      return fmt::format("lognormal:{}:{}", compact(mean_seconds), compact(deviation_seconds));
    case Kind::exponential:
      return fmt::format("exponential:{}", compact(mean_seconds));
  }
  return "";
}

}  // namespace starling
