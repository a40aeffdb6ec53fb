// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "starling/base/error.h"

namespace starling {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 8> kBandwidthUnits{{{"bit/s", 1.0 / 8},
                                                                              {"kbit/s", 1e3 / 8},
                                                                              {"Mbit/s", 1e6 / 8},
                                                                              {"Gbit/s", 1e9 / 8},
                                                                              {"B/s", 1},
                                                                              {"kB/s", 1e3},
                                                                              {"MB/s", 1e6},
                                                                              {"GB/s", 1e9}}};

}  // namespace

std::optional<Quantity> parse_quantity(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(value)) return std::nullopt;
  std::string_view unit = std::string_view(text).substr(static_cast<std::size_t>(end - text.c_str()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return Quantity{value, unit};
}

double parse_bandwidth(std::string_view text, std::string_view what) {
  const std::string copy(text);
  const std::optional<Quantity> quantity = parse_quantity(copy);
  if (quantity && quantity->value > 0) {
    for (const auto& [name, bytes] : kBandwidthUnits) {
      if (quantity->unit == name) return quantity->value * bytes;
    }
  }
  throw UserError(fmt::format("{} is '{}', but a bandwidth is a number above 0 with a unit, as in 10Gbit/s or 125MB/s", what, text));
}

std::string format_bytes(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.4g} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.4g} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.4g} MB", bytes / 1e6);
  return fmt::format("{:.4g} GB", bytes / 1e9);
}

}  // namespace starling
