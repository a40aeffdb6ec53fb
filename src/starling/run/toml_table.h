// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A table of a TOML file that is read key by key, with errors that say file, line, key and what would be valid. The only place, with its
// source, that knows the TOML library.
#pragma once

#include <cstddef>
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
  // A list of whole numbers.
  std::optional<std::vector<std::int64_t>> integers(std::string_view key);
  // A list of numbers. Whole and broken ones may stand side by side.
  std::optional<std::vector<double>> numbers(std::string_view key);
  // A string, or a list of them; nothing for anything else, which may then be read in another way.
  std::optional<std::vector<std::string>> strings(std::string_view key);
  std::optional<TomlTable> table(std::string_view key);
  std::vector<TomlTable> tables(std::string_view key);
  // False if the key is absent.
  bool is_list(std::string_view key) const;

  // Files that are put together from layers. Keys of these functions are dotted: "strategy.options.rho". Values keep the file and line they
  // stand at, whatever they are merged into.

  // A value that is no table, with where it begins.
  struct Leaf {
    std::string key{};
    std::string place{};  // As place() gives it.
    std::size_t line = 0;
    std::size_t column = 0;
  };
  // In the order of the file.
  std::vector<Leaf> leaves() const;
  std::size_t line() const;
  // Where the value of a key stands: "table.toml:12", or "--lr" of a flag. Empty if the key is absent.
  std::string place(std::string_view key) const;
  // "compare.seeds" of "seeds" in [compare]: how messages call it.
  std::string full_key(std::string_view key) const;

  // One element of a list: how it reads, and a table that has nothing but the element under the list's key.
  struct Choice;
  // Throws UserError if the key has no list, or an empty one.
  std::vector<Choice> choices(std::string_view key) const;

  // This table with another on top: tables are merged, all other values replaced, lists too. Nothing has been asked for in the result.
  TomlTable merged(const TomlTable& over) const;
  TomlTable without(std::string_view key) const;
  TomlTable copy() const;
  // The same, as if it were a whole file.
  TomlTable at_the_top() const;
  // A file that has nothing but what stands here under `key`, under `other_key`.
  TomlTable moved(std::string_view key, std::string_view other_key) const;
  bool contains(std::string_view key) const;

  // Lines "key = value", dotted, in the order of the alphabet, from which parse() makes the same table, under the prefix.
  std::string to_text(const std::string& prefix = "") const;

  // Runs `read` and puts file and line of `key`, which may be dotted, in front of a UserError it throws.
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

struct TomlTable::Choice {
  std::string text;
  TomlTable layer;
};

}  // namespace starling::run
