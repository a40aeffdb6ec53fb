// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a long command shows on standard error while it works: on a terminal one line that is refreshed below the others, elsewhere plain
// lines only. Errors of the terminal are ignored: what people may see or not must not end a run.
#pragma once

#include <string>

namespace starling::cli {

class StatusLine {
 public:
  StatusLine();

  bool is_terminal() const { return terminal_; }

  // On a terminal: the line that is refreshed, cut to its width. Elsewhere nothing.
  void show(const std::string& text) const;
  // A line that stays, in the place of the one that is refreshed.
  void print(const std::string& line) const;
  // Removes what is refreshed, so that other output may follow.
  void clear() const;

 private:
  bool terminal_;
};

// "12 s", "3 min 05 s", "2 h 10 min".
std::string time_text(double seconds);

}  // namespace starling::cli
