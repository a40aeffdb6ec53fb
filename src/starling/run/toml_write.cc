// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/toml_write.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "starling/base/error.h"

namespace starling::run {

std::string toml_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      result += '\\';
      result += character;
    } else if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned char>(character));
    } else {
      result += character;
    }
  }
  return result + '"';
}

std::string toml_key(const std::string& key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char character) {
    return std::isalnum(character) != 0 || character == '_' || character == '-';
  });
  return bare ? key : toml_quoted(key);
}

void TomlWriter::comment(std::string_view text) { text_ += fmt::format("# {}\n", text); }

void TomlWriter::table(std::string_view name) { text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name); }

void TomlWriter::element(std::string_view name) { text_ += fmt::format("{}[[{}]]\n", text_.empty() ? "" : "\n", name); }

void TomlWriter::put(std::string_view key, std::string_view value) { line(key, toml_quoted(value)); }

void TomlWriter::put(std::string_view key, double value) { line(key, fmt::format("{}", value)); }

void TomlWriter::put(std::string_view key, std::int64_t value) { line(key, std::to_string(value)); }

void TomlWriter::put(std::string_view key, std::uint64_t value) {
  STARLING_CHECK(std::in_range<std::int64_t>(value), fmt::format("{} is {}, too large for TOML", key, value));
  line(key, std::to_string(value));
}

void TomlWriter::put(std::string_view key, bool value) { line(key, value ? "true" : "false"); }

void TomlWriter::put(std::string_view key, Duration value) {
  const bool whole = value.count() % std::chrono::nanoseconds(std::chrono::seconds(1)).count() == 0;
  put(key, whole ? fmt::format("{}s", value.count() / 1'000'000'000) : fmt::format("{}ns", value.count()));
}

void TomlWriter::put(std::string_view key, const std::vector<double>& values) { line(key, fmt::format("[{}]", fmt::join(values, ", "))); }

void TomlWriter::put(std::string_view key, const std::vector<std::string>& values) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const std::string& value : values) texts.push_back(toml_quoted(value));
  line(key, fmt::format("[{}]", fmt::join(texts, ", ")));
}

void TomlWriter::line(std::string_view key, std::string_view value) { text_ += fmt::format("{} = {}\n", key, value); }

}  // namespace starling::run
