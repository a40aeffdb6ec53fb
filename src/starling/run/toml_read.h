// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Reads keys of a TomlTable into the fields of an options struct. Each function leaves its target alone if the key is absent, and throws
// UserError with file, line and key if the value does not fit.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "starling/base/distribution.h"
#include "starling/base/error.h"
#include "starling/base/time.h"
#include "starling/fabric/rank_set.h"
#include "starling/run/toml_table.h"

namespace starling::run {

inline void read(TomlTable& table, std::string_view key, Duration& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = parse_duration(*text, key); });
}

inline void read(TomlTable& table, std::string_view key, std::optional<Duration>& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = parse_duration(*text, key); });
}

inline void read(TomlTable& table, std::string_view key, Distribution& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = Distribution::parse(*text, key); });
}

inline void read(TomlTable& table, std::string_view key, std::optional<Distribution>& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = Distribution::parse(*text, key); });
}

inline void read(TomlTable& table, std::string_view key, fabric::RankSet& target) {
  if (const auto text = table.text(key)) table.locate(key, [&] { target = fabric::RankSet::parse(*text, key); });
}

inline void read(TomlTable& table, std::string_view key, double& target) {
  if (const auto value = table.number(key)) target = *value;
}

inline void read(TomlTable& table, std::string_view key, std::vector<double>& target) {
  if (auto values = table.numbers(key)) target = *std::move(values);
}

inline void read(TomlTable& table, std::string_view key, bool& target) {
  if (const auto value = table.boolean(key)) target = *value;
}

inline void read(TomlTable& table, std::string_view key, std::string& target) {
  if (auto value = table.string(key)) target = *std::move(value);
}

template <class Integer>
requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>) void read(TomlTable& table, std::string_view key, Integer& target) {
  const std::optional<std::int64_t> value = table.integer(key);
  if (!value) return;
  table.locate(key, [&] {
    if (!std::in_range<Integer>(*value)) {
      throw UserError(fmt::format("{} is {}, but it must be between {} and {}", table.full_key(key), *value,
                                  std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max()));
    }
    target = static_cast<Integer>(*value);
  });
}

}  // namespace starling::run
