// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "starling/base/file.h"
#include "starling/cli/commands.h"
#include "starling/lab/report.h"

namespace starling::cli {
namespace {

struct Flags {
  std::vector<std::string> paths;
  std::string out = "report.html";
  std::string title;
};

void run_report(const Flags& flags) {
  const std::string page = lab::make_report({.paths = flags.paths, .title = flags.title});
  write_file_atomically(flags.out, page, "report");
  fmt::print("{}\n", flags.out);
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Make a page with plots of runs, side by side: one HTML file that needs no network");
  auto flags = std::make_shared<Flags>();
  command->add_option("runs", flags->paths, "Run directories, directories of comparisons, folders of landscapes")->required();
  command->add_option("--out", flags->out, "The page to write; one that exists is replaced")->capture_default_str();
  command->add_option("--title", flags->title, "The heading; without it, the first path or the title of the comparison");
  command->footer("Example: starling report runs/1 runs/2 --out report.html");
  command->callback([flags] { run_report(*flags); });
}

}  // namespace starling::cli
