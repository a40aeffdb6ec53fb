// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The options of a strategy: described once, as a table, from which come the defaults, the checks, the help and the documentation.
//
//   std::vector<Option> options{
//       Option::number("rho", 0.5, 0, 1e6, "strength of the pull between a worker and the centre"),
//       Option::choice("order", "round-robin", {"round-robin", "arrival"}, "who may exchange next")};
//   Settings settings("easgd", options);
//   settings.set("rho", "0.9");                 // Throws UserError naming easgd.rho, its range and the nearest name.
//   settings.number("rho");
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace starling::strategy {

struct Option {
  enum class Kind { number, integer, boolean, choice };

  std::string name{};
  Kind kind = Kind::number;
  std::string standard{};  // The default, as text.
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices{};
  std::string help{};  // What it is; no full stop.

  static Option number(std::string name, double standard, double least, double most, std::string help);
  static Option integer(std::string name, std::int64_t standard, std::int64_t least, std::int64_t most, std::string help);
  static Option boolean(std::string name, bool standard, std::string help);
  static Option choice(std::string name, std::string standard, std::vector<std::string> choices, std::string help);

  // "0 to 1000000", "true or false", "round-robin or arrival".
  std::string range() const;
};

// Values for the options of one strategy. A value type.
class Settings {
 public:
  Settings() = default;
  Settings(std::string strategy, std::vector<Option> options);

  // Throws UserError for an option that does not exist or a value that does not fit.
  void set(const std::string& name, const std::string& value);

  // Precondition (checked): the option exists and is of this kind.
  double number(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  bool boolean(const std::string& name) const;
  const std::string& choice(const std::string& name) const;

  // All values as text, by name.
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  const Option& find(const std::string& name, Option::Kind kind) const;

  std::string strategy_;
  std::vector<Option> options_;
  std::map<std::string, std::string> values_;
};

}  // namespace starling::strategy
