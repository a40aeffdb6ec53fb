// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Writes TOML that TomlTable reads back to the same values: numbers with all their digits, times in nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/time.h"

namespace starling::run {

// A string in quotes.
std::string toml_quoted(std::string_view text);

// A key as it stands before the equals sign: in quotes where it must be.
std::string toml_key(const std::string& key);

class TomlWriter {
 public:
  void comment(std::string_view text);

  void table(std::string_view name);    // [name]: what is put next stands in it.
  void element(std::string_view name);  // [[name]]

  void put(std::string_view key, std::string_view value);
  void put(std::string_view key, const char* value) { put(key, std::string_view(value)); }
  void put(std::string_view key, double value);
  void put(std::string_view key, std::int64_t value);
  void put(std::string_view key, std::uint64_t value);  // At most 2^63 - 1 (checked): TOML has no larger numbers.
  void put(std::string_view key, int value) { put(key, std::int64_t{value}); }
  void put(std::string_view key, bool value);
  void put(std::string_view key, Duration value);
  void put(std::string_view key, const std::vector<double>& values);
  void put(std::string_view key, const std::vector<std::string>& values);

  const std::string& text() const { return text_; }

 private:
  void line(std::string_view key, std::string_view value);

  std::string text_;
};

}  // namespace starling::run
