// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The report: one HTML page with everything in it, data, script, style and the chart library, that opens from a disk without a network.
//
//   write_report("report.html", make_report({.paths = {"runs/a", "runs/b"}}));
//
// What the page shows is described in docs/report.md.
#pragma once

#include <string>
#include <vector>

#include "starling/lab/report_data.h"

namespace starling::lab {

struct ReportInput {
  // Run directories, comparison directories (their runs come along), folders with a landscape. A landscape in the folder of a run that is
  // among them is shown too, unless one is given itself.
  std::vector<std::string> paths{};
  std::string title{};  // "" for one made of the paths.
};

// The page. Throws UserError if a path is none of these, or a file in it is damaged.
std::string make_report(const ReportInput& input);

// Throws UserError if there is anything at the path that would be lost: all but an empty file or a page that make_report() made.
void require_replaceable(const std::string& path);

// Writes the page atomically. Throws UserError as require_replaceable() does, and if it cannot be written.
void write_report(const std::string& path, const std::string& page);

// The same page of one run while it goes on, for a server that shows it. Not thread-safe.
class LiveReport {
 public:
  explicit LiveReport(std::string run_path);

  // The page, which asks for data() again and again, at the address "data.json" beside its own, unless the run is over.
  std::string page(bool ended = false);

  // What the page shows, as JSON. Files are read only as far as they have grown, and the text is made again only if they have.
  // `ended`: the run is over, and the page need not ask again. A file that cannot be read is told in the text, not thrown.
  std::string data(bool ended);

 private:
  RunFollower run_;
  std::string run_path_;
  std::string run_json_;
  std::string problem_;
};

}  // namespace starling::lab
