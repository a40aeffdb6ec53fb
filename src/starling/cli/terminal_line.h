// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One line on standard error that is refreshed, where that is a terminal. What people may see or not must not end a command: errors of
// the terminal are ignored.
#pragma once

#include <string>

namespace starling::cli {

class TerminalLine {
 public:
  TerminalLine();

  bool is_terminal() const { return terminal_; }

  // In place of what was shown before, cut to what fits on one row. Only on a terminal.
  void show(const std::string& text) const;

  // Removes what is shown, so that other output may follow.
  void clear() const;

  // A line that stays.
  void print(const std::string& text) const;

 private:
  bool terminal_;
};

// "8 s", "3 min 05 s", "2 h 10 min".
std::string time_text(double seconds);

}  // namespace starling::cli
