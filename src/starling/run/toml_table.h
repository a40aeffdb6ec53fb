// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A table of a TOML file that is read key by key, with errors that say file, line, key and what would be valid. The only place, with its
// source, that knows the TOML library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace starling::run {

class TomlTable {
 public:
  // Throws UserError if the text is not TOML.
  static TomlTable parse(const std::string& text, const std::string& origin);
  ~TomlTable();
  TomlTable(TomlTable&&) noexcept;
  TomlTable& operator=(TomlTable&&) noexcept;
  TomlTable(const TomlTable&) = delete;
  TomlTable& operator=(const TomlTable&) = delete;

  // Each returns nothing if the key is absent and throws UserError if its value is of another type.
  std::optional<std::int64_t> integer(std::string_view key);
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> string(std::string_view key);
  // A string or an integer, as text: so that ranks = 3 and ranks = "0,3" both do.
  std::optional<std::string> text(std::string_view key);
  // A string, a number or a boolean, as text: for values whose type is known elsewhere.
  std::optional<std::string> scalar(std::string_view key);
  // All keys there are, in the order of the alphabet.
  std::vector<std::string> keys() const;
  // Every value below this table as text, by its full key, in the order of the alphabet: ("optimizer.lr", "0.02"), ("delay[0].time",
  // "30ms").
  std::vector<std::pair<std::string, std::string>> flattened() const;
  // A list of numbers. Whole and broken ones may stand side by side.
  std::optional<std::vector<double>> numbers(std::string_view key);
  // A string, or a list of them; nothing for anything else, which may then be read in another way.
  std::optional<std::vector<std::string>> strings(std::string_view key);
  std::optional<TomlTable> table(std::string_view key);
  std::vector<TomlTable> tables(std::string_view key);

  // Runs `read` and puts file and line of `key` in front of a UserError it throws.
  void locate(std::string_view key, const std::function<void()>& read) const;

  // Throws UserError if the key is absent.
  void require(std::string_view key) const;

  // Throws UserError if a key was never asked for, with the nearest one that was.
  void reject_unknown_keys() const;

 private:
  struct State;
  explicit TomlTable(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace starling::run
