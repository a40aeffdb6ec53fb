// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The flags of `starling compare`: those of `starling train`, for all cells, and lists that make axes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/cli/train_flags.h"
#include "starling/lab/grid.h"

namespace CLI {
class App;
}

namespace starling::cli {

struct CompareFlags {
  TrainFlags train{};
  std::string file{};
  std::string strategies{};  // Lists with commas; likewise below.
  std::string workers{};
  std::string seeds{};
  std::vector<std::string> grid{};  // "KEY=V1,V2".
  std::string values{};
  std::optional<std::string> title{};
  int jobs = 0;
  bool fresh = false;
  bool markdown = false;
  bool dry_run = false;
};

// The flags must outlive the parser's work.
void add_compare_flags(CLI::App& command, CompareFlags& flags);

// Reads the file, if one was given. Throws UserError for what cannot be read.
lab::GridSource to_source(const CompareFlags& flags);

// As a shell must be given it to mean just this.
std::string shell_word(const std::string& text);

// The command without what does not change the result, such as where it is written: "starling compare table2.toml --epochs 1". The file
// with its folder, or by its name alone.
std::string command_of(const CLI::App& command, bool with_folder);

}  // namespace starling::cli
