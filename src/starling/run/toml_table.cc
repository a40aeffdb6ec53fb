// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/toml_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <toml.hpp>
#include <tuple>
#include <utility>

#include "starling/base/error.h"
#include "starling/run/toml_write.h"

namespace starling::run {
namespace {

// The value at a dotted key; null if it is not there.
const toml::value* find_path(const toml::value& root, std::string_view path) {
  const toml::value* at = &root;
  for (;;) {
    const std::size_t dot = path.find('.');
    if (!at->is_table()) return nullptr;
    const auto& entries = at->as_table();
    const auto found = entries.find(std::string(path.substr(0, dot)));
    if (found == entries.end()) return nullptr;
    at = &found->second;
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

void merge_into(toml::value& base, const toml::value& over) {
  if (!base.is_table() || !over.is_table()) {
    base = over;
    return;
  }
  for (const auto& [key, value] : over.as_table()) {
    const auto [found, added] = base.as_table().try_emplace(key, value);
    if (!added) merge_into(found->second, value);
  }
}

void remove_path(toml::value& root, std::string_view path) {
  if (!root.is_table()) return;
  auto& entries = root.as_table();
  const std::size_t dot = path.find('.');
  const auto found = entries.find(std::string(path.substr(0, dot)));
  if (found == entries.end()) return;
  if (dot == std::string_view::npos) {
    entries.erase(found);
  } else {
    remove_path(found->second, path.substr(dot + 1));
  }
}

// The tables on the way to a dotted key, as they stand, with nothing in them but this leaf.
toml::value only(const toml::value& table, std::string_view path, const toml::value& leaf) {
  const std::size_t dot = path.find('.');
  const std::string key(path.substr(0, dot));
  toml::value result = table;
  result.as_table() = {{key, dot == std::string_view::npos ? leaf : only(table.as_table().at(key), path.substr(dot + 1), leaf)}};
  return result;
}

// The keys of a table, in the order of the alphabet.
std::vector<std::string> sorted_keys(const toml::value& table) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : table.as_table()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::string joined(const std::string& prefix, const std::string& key) { return prefix.empty() ? key : fmt::format("{}.{}", prefix, key); }

// Layers may come from several files. A flag has no lines.
std::string place_of(const toml::value& at, const std::string& origin) {
  const toml::source_location location = at.location();
  const std::string& file = location.file_name() == "unknown file" ? origin : location.file_name();
  return file.starts_with("--") ? file : fmt::format("{}:{}", file, location.line());
}

void collect_leaves(const toml::value& table, const std::string& prefix, const std::string& origin, std::vector<TomlTable::Leaf>& leaves) {
  for (const std::string& key : sorted_keys(table)) {
    const toml::value& value = table.as_table().at(key);
    if (value.is_table() && !value.as_table().empty()) {
      collect_leaves(value, joined(prefix, key), origin, leaves);
    } else {
      leaves.push_back({.key = joined(prefix, key),
                        .place = place_of(value, origin),
                        .line = value.location().line(),
                        .column = value.location().column()});
    }
  }
}

// On one line, as TOML.
std::string inline_text(const toml::value& value) {
  if (value.is_string()) return toml_quoted(value.as_string().str);
  if (value.is_array()) {
    std::vector<std::string> elements;
    for (const toml::value& element : value.as_array()) elements.push_back(inline_text(element));
    return fmt::format("[{}]", fmt::join(elements, ", "));
  }
  if (value.is_table()) {
    std::vector<std::string> entries;
    for (const std::string& key : sorted_keys(value)) {
      entries.push_back(fmt::format("{} = {}", toml_key(key), inline_text(value.as_table().at(key))));
    }
    return fmt::format("{{{}}}", fmt::join(entries, ", "));
  }
  if (value.is_integer()) return std::to_string(value.as_integer());
  if (value.is_boolean()) return value.as_boolean() ? "true" : "false";
  if (value.is_floating()) {
    const std::string text = fmt::format("{}", value.as_floating());
    return text.find_first_not_of("0123456789-") == std::string::npos ? fmt::format("{}.0", text) : text;
  }
  std::ostringstream text;
  text << value;  // Dates and times, which no key of ours has.
  return text.str();
}

// How people read it: without quotes and brackets.
std::string plain_text(const toml::value& value) {
  if (value.is_string()) return value.as_string().str;
  if (value.is_floating()) return fmt::format("{}", value.as_floating());
  if (!value.is_array()) return inline_text(value);
  if (value.as_array().empty()) return "none";
  std::vector<std::string> elements;
  for (const toml::value& element : value.as_array()) elements.push_back(plain_text(element));
  return fmt::format("{}", fmt::join(elements, ", "));
}

bool has_tables(const toml::value& value) { return value.is_array() && !value.as_array().empty() && value.as_array().front().is_table(); }

void flatten(const toml::value& value, const std::string& name, std::vector<std::pair<std::string, std::string>>& result) {
  if (value.is_table()) {
    for (const auto& [key, inner] : value.as_table()) flatten(inner, name.empty() ? key : fmt::format("{}.{}", name, key), result);
  } else if (has_tables(value)) {
    for (std::size_t i = 0; i < value.as_array().size(); ++i) flatten(value.as_array()[i], fmt::format("{}[{}]", name, i), result);
  } else {
    result.emplace_back(name, plain_text(value));
  }
}

void write_lines(const toml::value& table, const std::string& prefix, std::string& text) {
  for (const std::string& key : sorted_keys(table)) {
    const toml::value& value = table.as_table().at(key);
    const std::string name = joined(prefix, toml_key(key));
    if (value.is_table() && !value.as_table().empty()) {
      write_lines(value, name, text);
    } else {
      text += fmt::format("{} = {}\n", name, inline_text(value));
    }
  }
}

}  // namespace

struct TomlTable::State {
  toml::value value;
  std::string origin;
  std::string name;  // "sim.crash", for messages; empty at the top.
  std::vector<std::string> asked;

  const toml::value* find(std::string_view key) {
    if (std::find(asked.begin(), asked.end(), key) == asked.end()) asked.emplace_back(key);
    const auto& entries = value.as_table();
    const auto found = entries.find(std::string(key));
    return found == entries.end() ? nullptr : &found->second;
  }

  std::string full(std::string_view key) const { return name.empty() ? std::string(key) : fmt::format("{}.{}", name, key); }

  std::string place(const toml::value& at) const { return place_of(at, origin); }

  std::unique_ptr<State> with(toml::value other) const {
    auto result = std::make_unique<State>();
    result->value = std::move(other);
    result->origin = origin;
    result->name = name;
    return result;
  }

  [[noreturn]] void wrong_type(std::string_view key, const toml::value& at, std::string_view expected) const {
    std::ostringstream actual;
    actual << at.type();
    const std::string type = at.is_floating() ? "float" : actual.str();
    const bool vowel = std::string_view("aeiou").find(type[0]) != std::string_view::npos;
    throw UserError(fmt::format("{}: {} is {} {}, but it must be {}", place(at), full(key), vowel ? "an" : "a", type, expected));
  }
};

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

std::vector<std::string> TomlTable::keys() const { return sorted_keys(state_->value); }

std::vector<std::pair<std::string, std::string>> TomlTable::flattened() const {
  std::vector<std::pair<std::string, std::string>> result;
  flatten(state_->value, state_->name, result);
  std::sort(result.begin(), result.end());
  return result;
}

std::optional<std::vector<std::int64_t>> TomlTable::integers(std::string_view key) {
  const toml::value* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) state_->wrong_type(key, *value, "a list of whole numbers, as in [1, 2]");
  std::vector<std::int64_t> result;
  for (const toml::value& element : value->as_array()) {
    if (!element.is_integer()) state_->wrong_type(key, element, "a list of whole numbers, as in [1, 2]");
    result.push_back(element.as_integer());
  }
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
    const toml::value* found = find_path(state_->value, key);
    throw UserError(fmt::format("{}: {}", state_->place(found == nullptr ? state_->value : *found), error.what()));
  }
}

bool TomlTable::is_list(std::string_view key) const {
  const toml::value* found = find_path(state_->value, key);
  return found != nullptr && found->is_array();
}

std::vector<TomlTable::Leaf> TomlTable::leaves() const {
  std::vector<Leaf> result;
  collect_leaves(state_->value, "", state_->origin, result);
  std::stable_sort(result.begin(), result.end(),
                   [](const Leaf& a, const Leaf& b) { return std::tie(a.line, a.column) < std::tie(b.line, b.column); });
  return result;
}

std::size_t TomlTable::line() const { return state_->value.location().line(); }

std::string TomlTable::place(std::string_view key) const {
  const toml::value* found = find_path(state_->value, key);
  return found == nullptr ? "" : state_->place(*found);
}

std::string TomlTable::full_key(std::string_view key) const { return state_->full(key); }

std::vector<TomlTable::Choice> TomlTable::choices(std::string_view key) const {
  const toml::value* list = find_path(state_->value, key);
  STARLING_CHECK(list != nullptr, fmt::format("there is no '{}' to choose from", key));
  if (!list->is_array()) state_->wrong_type(key, *list, "a list of the values to compare, as in [2, 5]");
  if (list->as_array().empty()) {
    throw UserError(
        fmt::format("{}: {} is an empty list, but it must have the values to compare", state_->place(*list), state_->full(key)));
  }
  std::vector<Choice> result;
  for (const toml::value& element : list->as_array()) {
    auto state = state_->with(only(state_->value, key, element));
    state->name.clear();
    result.push_back({.text = plain_text(element), .layer = TomlTable(std::move(state))});
  }
  return result;
}

TomlTable TomlTable::merged(const TomlTable& over) const {
  toml::value value = state_->value;
  merge_into(value, over.state_->value);
  return TomlTable(state_->with(std::move(value)));
}

TomlTable TomlTable::without(std::string_view key) const {
  toml::value value = state_->value;
  remove_path(value, key);
  return TomlTable(state_->with(std::move(value)));
}

bool TomlTable::contains(std::string_view key) const { return find_path(state_->value, key) != nullptr; }

TomlTable TomlTable::copy() const { return TomlTable(state_->with(state_->value)); }

TomlTable TomlTable::at_the_top() const {
  TomlTable result = copy();
  result.state_->name.clear();
  return result;
}

TomlTable TomlTable::moved(std::string_view key, std::string_view other_key) const {
  const toml::value* value = find_path(state_->value, key);
  STARLING_CHECK(value != nullptr, fmt::format("there is no '{}' to move", key));
  toml::value result = *value;
  for (std::string_view rest = other_key; !rest.empty();) {
    const std::size_t dot = rest.rfind('.');
    result = toml::table{{std::string(dot == std::string_view::npos ? rest : rest.substr(dot + 1)), result}};
    rest = rest.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  auto state = state_->with(std::move(result));
  state->name.clear();
  return TomlTable(std::move(state));
}

std::string TomlTable::to_text(const std::string& prefix) const {
  std::string text;
  write_lines(state_->value, prefix, text);
  return text;
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
