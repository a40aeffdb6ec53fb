// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "starling/base/error.h"

namespace starling::strategy {
namespace {

template <class Number>
bool parse(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool in_range(const Option& option, double value) { return std::isfinite(value) && value >= option.least && value <= option.most; }

bool fits(const Option& option, const std::string& value) {
  switch (option.kind) {
    case Option::Kind::number: {
      double number = 0;
      return parse(value, number) && in_range(option, number);
    }
    case Option::Kind::integer: {
      std::int64_t number = 0;
      return parse(value, number) && in_range(option, static_cast<double>(number));
    }
    case Option::Kind::boolean:
      return value == "true" || value == "false";
    case Option::Kind::choice:
      return std::find(option.choices.begin(), option.choices.end(), value) != option.choices.end();
  }
  return false;
}

}  // namespace

Option Option::number(std::string name, double standard, double least, double most, std::string help) {
  return {.name = std::move(name),
          .kind = Kind::number,
          .standard = fmt::format("{}", standard),
          .least = least,
          .most = most,
          .help = std::move(help)};
}

Option Option::integer(std::string name, std::int64_t standard, std::int64_t least, std::int64_t most, std::string help) {
  return {.name = std::move(name),
          .kind = Kind::integer,
          .standard = std::to_string(standard),
          .least = static_cast<double>(least),
          .most = static_cast<double>(most),
          .help = std::move(help)};
}

Option Option::boolean(std::string name, bool standard, std::string help) {
  return {.name = std::move(name), .kind = Kind::boolean, .standard = standard ? "true" : "false", .help = std::move(help)};
}

Option Option::choice(std::string name, std::string standard, std::vector<std::string> choices, std::string help) {
  return {.name = std::move(name),
          .kind = Kind::choice,
          .standard = std::move(standard),
          .choices = std::move(choices),
          .help = std::move(help)};
}

std::string Option::range() const {
  switch (kind) {
    case Kind::number:
      return fmt::format("{} to {}", least, most);
    case Kind::integer:
      return fmt::format("{:.0f} to {:.0f}", least, most);
    case Kind::boolean:
      return "true or false";
    case Kind::choice:
      break;
  }
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

Settings::Settings(std::string strategy, std::vector<Option> options) : strategy_(std::move(strategy)), options_(std::move(options)) {
  for (const Option& option : options_) {
    STARLING_CHECK(fits(option, option.standard), fmt::format("the default of {}.{} does not fit its range", strategy_, option.name));
    values_[option.name] = option.standard;
  }
}

void Settings::set(const std::string& name, const std::string& value) {
  const auto option = std::find_if(options_.begin(), options_.end(), [&](const Option& one) { return one.name == name; });
  if (option == options_.end()) {
    std::vector<std::string> names;
    names.reserve(options_.size());
    for (const Option& one : options_) names.push_back(one.name);
    const std::string valid = names.empty() ? "it has none" : fmt::format("it has {}", fmt::join(names, ", "));
    throw UserError(fmt::format("strategy {} has no option '{}'; {}.{}", strategy_, name, valid, nearest_name_hint(name, names)));
  }
  if (!fits(*option, value)) {
    throw UserError(fmt::format("{}.{} is '{}', but it is {}{}: {}", strategy_, name, value,
                                option->kind == Option::Kind::integer ? "a whole number, " : "", option->range(), option->help));
  }
  values_[name] = value;
}

const Option& Settings::find(const std::string& name, Option::Kind kind) const {
  const auto option = std::find_if(options_.begin(), options_.end(), [&](const Option& one) { return one.name == name; });
  STARLING_CHECK(option != options_.end() && option->kind == kind,
                 fmt::format("{} asks for an option '{}' it did not describe", strategy_, name));
  return *option;
}

double Settings::number(const std::string& name) const {
  (void)find(name, Option::Kind::number);
  double value = 0;
  parse(values_.at(name), value);
  return value;
}

std::int64_t Settings::integer(const std::string& name) const {
  (void)find(name, Option::Kind::integer);
  std::int64_t value = 0;
  parse(values_.at(name), value);
  return value;
}

bool Settings::boolean(const std::string& name) const {
  (void)find(name, Option::Kind::boolean);
  return values_.at(name) == "true";
}

const std::string& Settings::choice(const std::string& name) const {
  (void)find(name, Option::Kind::choice);
  return values_.at(name);
}

}  // namespace starling::strategy
