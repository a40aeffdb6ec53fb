// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/cli/commands.h"
#include "starling/lab/report.h"

namespace starling::cli {
namespace {

struct Flags {
  std::vector<std::string> paths;
  std::string out = "report.html";
  std::string title;
};

void print_page(const std::string& page) {
  const bool written = std::fwrite(page.data(), 1, page.size(), stdout) == page.size();
  if (!written || std::fflush(stdout) != 0)
    throw UserError(fmt::format("cannot write the report to standard output: {}", std::strerror(errno)));
}

void run_report(const Flags& flags) {
  const bool to_file = flags.out != "-";
  if (to_file) lab::require_replaceable(flags.out);  // Before the work.
  const std::string page = lab::make_report({.paths = flags.paths, .title = flags.title});
  if (!to_file) return print_page(page);
  lab::write_report(flags.out, page);
  fmt::print("{}\n", flags.out);
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Make a page with plots of runs, side by side: one HTML file that needs no network");
  auto flags = std::make_shared<Flags>();
  command->add_option("runs", flags->paths, "Run directories, directories of comparisons, folders of landscapes")->required();
  command
      ->add_option("--out", flags->out, "The page to write, - for standard output; a page that exists is replaced, any other file is not")
      ->capture_default_str();
  command->add_option("--title", flags->title,
                      "The heading [the first path or the title of the comparison, and how many more: 'runs/1 and 8 more']");
  command->footer("Examples:\n  starling report runs/1 runs/2 --out report.html\n  starling report runs/* --title 'All of them'");
  command->callback([flags] { run_report(*flags); });
}

}  // namespace starling::cli
