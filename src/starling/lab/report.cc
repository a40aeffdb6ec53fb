// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/lab/escaped_markup.h"
#include "starling/lab/report_assets.h"
#include "starling/version.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;

// A page with many runs has fewer points of each: about so many of all together, but at least so many of one.
constexpr std::size_t kAllPoints = 20000;
constexpr std::size_t kFewestPoints = 100;

// How every page begins.
constexpr std::string_view kPageBegin = "<!DOCTYPE html>\n<!-- Made by Starling.";

// In a script element only "<" can end or open anything; in JSON it stands in strings alone, where it may be written like this.
std::string escaped_json(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  for (const char character : json) {
    if (character == '<') {
      result += "\\u003c";
    } else {
      result += character;
    }
  }
  return result;
}

// The names are looked for in the template only, never in what was put into it.
std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string_view>>& parts) {
  std::string result;
  while (!page.empty()) {
    const std::size_t at = page.find('@');
    result += page.substr(0, at);
    if (at == std::string_view::npos) break;
    page.remove_prefix(at);
    const auto part = std::find_if(parts.begin(), parts.end(), [&page](const auto& each) { return page.starts_with(each.first); });
    result += part == parts.end() ? page.substr(0, 1) : part->second;
    page.remove_prefix(part == parts.end() ? 1 : part->first.size());
  }
  return result;
}

std::string make_page(const std::string& title, const std::string& data, bool live) {
  // The browser itself sees to it that nothing is loaded from anywhere, and nothing sent but the questions of a live page to its server.
  const std::string policy =
      fmt::format("default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src {}; img-src data:",
                  live ? "'self'" : "'none'");
  const std::string safe_title = escaped_markup(title);
  const std::string safe_data = escaped_json(data);
  return filled(report_page_html(), {{"@STYLE@", report_page_style()},
                                     {"@CHARTS@", report_page_charts()},
                                     {"@SCRIPT@", report_page_script()},
                                     {"@TITLE@", safe_title},
                                     {"@POLICY@", policy},
                                     {"@DATA@", safe_data}});
}

std::string joined(const std::vector<std::string>& elements) { return fmt::format("[{}]", fmt::join(elements, ",")); }

std::string make_data(const std::string& title, const std::vector<std::string>& runs, const std::vector<std::string>& comparisons,
                      const std::vector<std::string>& landscapes, std::string_view more) {
  return fmt::format(R"({{"title":{},"version":{},"runs":{},"comparisons":{},"landscapes":{}{}}})", json_string(title),
                     json_string(kVersion), joined(runs), joined(comparisons), joined(landscapes), more);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// What goes before the names of runs, by the canonical path of their comparison. With several comparisons it is the title, or the folder
// where two have the same title; else nothing.
std::map<std::string, std::string> prefixes_of(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> prefixes;
  std::map<std::string, int> uses;
  std::vector<std::pair<std::string, std::string>> titles;  // Paths as given, and titles.
  for (const std::string& path : paths) {
    if (!has_comparison(path) || !prefixes.try_emplace(canonical(path)).second) continue;
    titles.emplace_back(path, read_comparison(path).title);
    ++uses[titles.back().second];
  }
  if (titles.size() < 2) return prefixes;
  for (const auto& [path, title] : titles) prefixes[canonical(path)] = fmt::format("{}: ", uses[title] > 1 ? path : title);
  return prefixes;
}

// What the paths of a report lead to, each once.
struct Sources {
  std::vector<ComparedRun> runs{};
  std::vector<std::string> comparisons{};
  std::vector<std::string> landscapes{};
  std::vector<std::string> titles{};

  explicit Sources(const std::vector<std::string>& paths);

 private:
  void add(const std::string& path);
  void add_run(ComparedRun run);
  std::string add_landscape(const std::string& path);

  std::set<std::string> seen_{};
  std::map<std::string, std::string> prefixes_;
};

Sources::Sources(const std::vector<std::string>& paths) : prefixes_(prefixes_of(paths)) {
  for (const std::string& path : paths) add(path);
  // `starling landscape RUN` writes into the run. It is not what a report on another landscape is about.
  if (!landscapes.empty()) return;
  for (const std::string& path : paths) {
    if (has_run(path) && has_landscape(path + "/landscape")) add_landscape(path + "/landscape");
  }
}

void Sources::add_run(ComparedRun run) {
  if (seen_.insert(canonical(run.path)).second) runs.push_back(std::move(run));
}

// Returns its title.
std::string Sources::add_landscape(const std::string& path) {
  LandscapeFile landscape = read_landscape(path);
  if (seen_.insert(canonical(path) + "/landscape.json").second) landscapes.push_back(std::move(landscape.json));
  return landscape.title;
}

[[noreturn]] void refuse(const std::string& path) {
  const std::vector<std::string> inside = shown_in(path);
  if (inside.empty()) {
    throw UserError(fmt::format(
        "'{}' is neither a run (it has no config.toml), nor a comparison (no comparison.json), nor a landscape (no landscape.json)", path));
  }
  const bool all_runs = std::all_of(inside.begin(), inside.end(), [&](const std::string& name) { return has_run(path + "/" + name); });
  const char* kind = !all_runs ? "folders that can be shown" : inside.size() == 1 ? "run" : "runs";
  // A star must not name what would be refused in turn.
  const auto entries = static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  const std::string hint =
      entries == inside.size() ? fmt::format(": starling report {}/*", path) : fmt::format(", the first is '{}/{}'", path, inside.front());
  throw UserError(
      fmt::format("'{}' is neither a run nor a comparison nor a landscape, but it has {} {} in it{}", path, inside.size(), kind, hint));
}

void Sources::add(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw UserError(fmt::format("there is no folder '{}' to report on", path));
  if (!seen_.insert(canonical(path) + "/").second) return;
  const std::size_t before = titles.size();
  if (has_comparison(path)) {
    ComparisonFile comparison = read_comparison(path, prefixes_.at(canonical(path)));
    comparisons.push_back(std::move(comparison.json));
    titles.push_back(std::move(comparison.title));
    for (ComparedRun& run : comparison.runs) add_run(std::move(run));
  }
  if (has_landscape(path)) titles.push_back(add_landscape(path));
  if (has_run(path)) {
    add_run({.path = path, .name = path});
    titles.push_back(path);
  }
  if (titles.size() == before) refuse(path);
}

}  // namespace

void require_replaceable(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return;
  if (!fs::is_regular_file(status)) throw UserError(fmt::format("cannot write the report to '{}': it is no file", path));
  std::string begin(kPageBegin.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (begin == kPageBegin || (fs::file_size(path, error) == 0 && !error)) return;
  throw UserError(fmt::format("'{}' exists and is no report of Starling: remove it, or choose another file with --out", path));
}

void write_report(const std::string& path, const std::string& page) {
  require_replaceable(path);
  write_file_atomically(path, page, "report");
}

std::string make_report(const ReportInput& input) {
  if (input.paths.empty()) throw UserError("a report needs at least one run, comparison or landscape");
  std::vector<std::string> paths;
  for (const std::string& path : input.paths) paths.push_back(without_slashes(path));
  const Sources sources(paths);
  const std::size_t count = std::max<std::size_t>(sources.runs.size(), 1);
  const std::size_t points = std::clamp(kAllPoints / count, kFewestPoints, kLinePoints);
  std::vector<std::string> runs;
  for (const ComparedRun& run : sources.runs) {
    RunFollower follower(run.path, run.name, points);
    follower.read();
    runs.push_back(follower.to_json());
  }
  const std::string title = !input.title.empty()         ? input.title
                            : sources.titles.size() == 1 ? sources.titles.front()
                                                         : fmt::format("{} and {} more", sources.titles.front(), sources.titles.size() - 1);
  return make_page(title, make_data(title, runs, sources.comparisons, sources.landscapes, ""), false);
}

LiveReport::LiveReport(std::string run_path) : run_(run_path, run_path), run_path_(std::move(run_path)) {}

std::string LiveReport::page(bool ended) { return make_page(run_path_, data(ended), true); }

std::string LiveReport::data(bool ended) {
  try {
    if (run_.read() || run_json_.empty()) run_json_ = run_.to_json();
    problem_.clear();
  } catch (const UserError& error) {
    problem_ = error.what();
  }
  const std::string more = fmt::format(R"(,"live":{{"ended":{},"problem":{}}})", ended, json_string(problem_));
  return make_data(run_path_, run_json_.empty() ? std::vector<std::string>{} : std::vector<std::string>{run_json_}, {}, {}, more);
}

}  // namespace starling::lab
