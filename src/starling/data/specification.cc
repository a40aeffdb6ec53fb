// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/specification.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "starling/base/error.h"
#include "starling/base/units.h"

namespace starling::data {

Specification::Specification(std::string text, std::string what) : text_(std::move(text)), what_(std::move(what)) {
  const std::size_t colon = text_.find(':');
  name_ = text_.substr(0, colon);
  if (colon == std::string::npos) return;
  std::string_view rest = std::string_view(text_).substr(colon + 1);
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view option = rest.substr(0, comma);
    const std::size_t equals = option.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      throw UserError(
          fmt::format("the {} is '{}', but '{}' is no option: options are written NAME:KEY=VALUE,KEY=VALUE", what_, text_, option));
    }
    std::string key(option.substr(0, equals));
    if (std::any_of(options_.begin(), options_.end(), [&](const auto& other) { return other.first == key; })) {
      throw UserError(fmt::format("the {} is '{}', but '{}' is given twice", what_, text_, key));
    }
    options_.emplace_back(std::move(key), option.substr(equals + 1));
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

const std::string* Specification::find(const std::string& key) {
  asked_.push_back(key);
  for (const auto& [name, value] : options_) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Specification::reject(const std::string& key, const std::string& value, const std::string& valid) const {
  throw UserError(fmt::format("'{}' of the {} '{}' is '{}', but it must be {}", key, what_, text_, value, valid));
}

std::uint64_t Specification::integer(const std::string& key, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most) {
  const std::string* value = find(key);
  if (value == nullptr) return otherwise;
  std::uint64_t result = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
  if (error == std::errc() && end == value->data() + value->size() && result >= least && result <= most) return result;
  reject(key, *value, fmt::format("a whole number from {} to {}", least, most));
}

double Specification::number(const std::string& key, double otherwise, double least, double most) {
  const std::string* value = find(key);
  if (value == nullptr) return otherwise;
  const std::optional<Quantity> quantity = parse_quantity(*value);
  if (quantity && quantity->unit.empty() && quantity->value >= least && quantity->value <= most) return quantity->value;
  reject(key, *value, fmt::format("a number from {} to {}", least, most));
}

void Specification::reject_unknown() const {
  for (const auto& [key, value] : options_) {
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    throw UserError(fmt::format("the {} is '{}', but {} has no option '{}': it has {}.{}", what_, text_, name_, key,
                                fmt::join(asked_, ", "), nearest_name_hint(key, asked_)));
  }
}

}  // namespace starling::data
