// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/toml_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <toml.hpp>
#include <utility>

#include "starling/base/error.h"

namespace starling::run {

struct TomlTable::State {
  toml::value value;
  std::string origin;
  std::string name;  // "sim.crash", for messages; empty at the top.
  std::vector<std::string> asked;

  const toml::value* find(std::string_view key) {
    asked.emplace_back(key);
    const auto& entries = value.as_table();
    const auto found = entries.find(std::string(key));
    return found == entries.end() ? nullptr : &found->second;
  }

  std::string full(std::string_view key) const { return name.empty() ? std::string(key) : fmt::format("{}.{}", name, key); }

  std::string place(const toml::value& at) const { return fmt::format("{}:{}", origin, at.location().line()); }

  [[noreturn]] void wrong_type(std::string_view key, const toml::value& at, std::string_view expected) const {
    std::ostringstream actual;
    actual << at.type();
    throw UserError(fmt::format("{}: {} is a {}, but it must be {}", place(at), full(key), actual.str(), expected));
  }
};

namespace {

bool has_tables(const toml::value& value) { return value.is_array() && !value.as_array().empty() && value.as_array().front().is_table(); }

std::string plain_text(const toml::value& value) {
  if (value.is_string()) return value.as_string().str;
  if (value.is_integer()) return std::to_string(value.as_integer());
  if (value.is_floating()) return fmt::format("{}", value.as_floating());
  if (value.is_boolean()) return value.as_boolean() ? "true" : "false";
  if (value.is_array()) {
    std::vector<std::string> elements;
    for (const toml::value& element : value.as_array()) elements.push_back(plain_text(element));
    return fmt::format("{}", fmt::join(elements, ", "));
  }
  std::ostringstream text;
  text << value;
  return text.str();
}

void flatten(const toml::value& value, const std::string& name, std::vector<std::pair<std::string, std::string>>& result) {
  if (value.is_table()) {
    for (const auto& [key, inner] : value.as_table()) flatten(inner, name.empty() ? key : fmt::format("{}.{}", name, key), result);
  } else if (has_tables(value)) {
    for (std::size_t i = 0; i < value.as_array().size(); ++i) flatten(value.as_array()[i], fmt::format("{}[{}]", name, i), result);
  } else {
    result.emplace_back(name, plain_text(value));
  }
}

}  // namespace

TomlTable TomlTable::parse(const std::string& text, const std::string& origin) {
  std::istringstream in(text);
  auto state = std::make_unique<State>();
  try {
    state->value = toml::parse(in, origin);
  } catch (const toml::exception& error) {
    // The library explains over several lines, with the place marked; its first line alone is its own name.
    throw UserError(fmt::format("{}:{}: this is not TOML\n{}", origin, error.location().line(), error.what()));
  }
  state->origin = origin;
  return TomlTable(std::move(state));
}

TomlTable::TomlTable(std::unique_ptr<State> state) : state_(std::move(state)) {}
TomlTable::~TomlTable() = default;
TomlTable::TomlTable(TomlTable&&) noexcept = default;
TomlTable& TomlTable::operator=(TomlTable&&) noexcept = default;

std::optional<std::int64_t> TomlTable::integer(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_integer()) state_->wrong_type(key, *value, "a whole number");
  return value->as_integer();
}

std::optional<double> TomlTable::number(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_integer()) return static_cast<double>(value->as_integer());
  if (!value->is_floating()) state_->wrong_type(key, *value, "a number");
  return value->as_floating();
}

std::optional<bool> TomlTable::boolean(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) state_->wrong_type(key, *value, "true or false");
  return value->as_boolean();
}

std::optional<std::string> TomlTable::string(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) state_->wrong_type(key, *value, "a string in quotes");
  return value->as_string().str;
}

std::optional<std::string> TomlTable::text(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_integer()) return std::to_string(value->as_integer());
  if (!value->is_string()) state_->wrong_type(key, *value, "a whole number or a string in quotes");
  return value->as_string().str;
}

std::optional<std::string> TomlTable::scalar(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_integer()) return std::to_string(value->as_integer());
  if (value->is_floating()) return fmt::format("{}", value->as_floating());
  if (value->is_boolean()) return value->as_boolean() ? "true" : "false";
  if (!value->is_string()) state_->wrong_type(key, *value, "a number, true or false, or a string in quotes");
  return value->as_string().str;
}

std::vector<std::string> TomlTable::keys() const {
  std::vector<std::string> result;
  for (const auto& [key, value] : state_->value.as_table()) result.push_back(key);
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::pair<std::string, std::string>> TomlTable::flattened() const {
  std::vector<std::pair<std::string, std::string>> result;
  flatten(state_->value, state_->name, result);
  std::sort(result.begin(), result.end());
  return result;
}

std::optional<std::vector<double>> TomlTable::numbers(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) state_->wrong_type(key, *value, "a list of numbers, as in [30, 60]");
  std::vector<double> result;
  for (const toml::value& element : value->as_array()) {
    if (!element.is_integer() && !element.is_floating()) state_->wrong_type(key, element, "a list of numbers, as in [30, 60]");
    result.push_back(element.is_integer() ? static_cast<double>(element.as_integer()) : element.as_floating());
  }
  return result;
}

std::optional<std::vector<std::string>> TomlTable::strings(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector<std::string>{value->as_string().str};
  if (!value->is_array() || value->as_array().empty()) return std::nullopt;
  std::vector<std::string> result;
  for (const toml::value& element : value->as_array()) {
    if (!element.is_string()) return std::nullopt;
    result.push_back(element.as_string().str);
  }
  return result;
}

std::optional<TomlTable> TomlTable::table(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_table()) state_->wrong_type(key, *value, fmt::format("a table, [{}]", state_->full(key)));
  auto inner = std::make_unique<State>();
  inner->value = *value;
  inner->origin = state_->origin;
  inner->name = state_->full(key);
  return TomlTable(std::move(inner));
}

std::vector<TomlTable> TomlTable::tables(std::string_view key) {
  std::vector<TomlTable> result;
  const toml::value* value = state_->find(key);
  if (value == nullptr) return result;
  const std::string expected = fmt::format("a list of tables, [[{}]]", state_->full(key));
  if (!value->is_array()) state_->wrong_type(key, *value, expected);
  for (const toml::value& element : value->as_array()) {
    if (!element.is_table()) state_->wrong_type(key, element, expected);
    auto inner = std::make_unique<State>();
    inner->value = element;
    inner->origin = state_->origin;
    inner->name = state_->full(key);
    result.push_back(TomlTable(std::move(inner)));
  }
  return result;
}

void TomlTable::locate(std::string_view key, const std::function<void()>& read) const {
  try {
    read();
  } catch (const UserError& error) {
    const auto& entries = state_->value.as_table();
    const auto found = entries.find(std::string(key));
    throw UserError(fmt::format("{}: {}", state_->place(found == entries.end() ? state_->value : found->second), error.what()));
  }
}

void TomlTable::require(std::string_view key) const {
  if (state_->value.as_table().contains(std::string(key))) return;
  throw UserError(fmt::format("{}: [[{}]] needs a '{}'", state_->place(state_->value), state_->name, key));
}

void TomlTable::reject_unknown_keys() const {
  for (const auto& [key, value] : state_->value.as_table()) {
    if (std::find(state_->asked.begin(), state_->asked.end(), key) != state_->asked.end()) continue;
    throw UserError(fmt::format("{}: there is no key '{}'; {} has {}.{}", state_->place(value), state_->full(key),
                                state_->name.empty() ? "the file" : fmt::format("[{}]", state_->name), fmt::join(state_->asked, ", "),
                                nearest_name_hint(key, state_->asked)));
  }
}

}  // namespace starling::run
