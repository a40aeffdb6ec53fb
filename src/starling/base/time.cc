// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/time.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/units.h"

namespace starling {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 6> kUnits{
    {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1.0}, {"min", 60.0}}};

}  // namespace

Duration from_seconds(double seconds) {
  const double nanoseconds = std::round(seconds * 1e9);
  STARLING_CHECK(!std::isnan(nanoseconds), std::string("a time that is not a number"));
  if (nanoseconds >= static_cast<double>(kEndOfTime.count())) return kEndOfTime;
  return Duration(static_cast<Duration::rep>(nanoseconds));
}

std::string format_duration(Duration duration) {
  const double magnitude = std::abs(static_cast<double>(duration.count()));
  if (magnitude < 1e3) return fmt::format("{} ns", duration.count());
  const auto value = static_cast<double>(duration.count());
  if (magnitude < 1e6) return fmt::format("{:.4g} us", value * 1e-3);
  if (magnitude < 1e9) return fmt::format("{:.4g} ms", value * 1e-6);
  return fmt::format("{:.4g} s", value * 1e-9);
}

Duration parse_duration(std::string_view text, std::string_view what) {
  const std::string copy(text);
  const std::optional<Quantity> quantity = parse_quantity(copy);
  if (quantity && quantity->value >= 0) {
    if (quantity->value == 0 && quantity->unit.empty()) return Duration::zero();
    for (const auto& [name, seconds] : kUnits) {
      if (quantity->unit == name) return from_seconds(quantity->value * seconds);
    }
  }
  throw UserError(
      fmt::format("{} is '{}', but a time is a number that is not negative with a unit: ns, us, ms, s or min, as in 30ms", what, text));
}

}  // namespace starling
