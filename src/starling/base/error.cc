// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace starling {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, replaced});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

void throw_broken_invariant(const char* condition, const char* file, int line, const std::string& message) {
  throw BrokenInvariant(fmt::format("{} ({} does not hold, {}:{})", message, condition, file, line));
}

std::string nearest_name_hint(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string* nearest = nullptr;
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? std::string() : fmt::format(" Did you mean '{}'?", *nearest);
}

}  // namespace starling
