// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "starling/base/error.h"
#include "starling/lab/report_assets.h"
#include "starling/version.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;

// A page with many runs has fewer points of each: about so many of all together, but at least so many of one.
constexpr std::size_t kAllPoints = 20000;
constexpr std::size_t kFewestPoints = 100;

std::string escaped_html(std::string_view text) {
  std::string result;
  for (const char character : text) {
    switch (character) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += character;
    }
  }
  return result;
}

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
  const std::string safe_title = escaped_html(title);
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

// What the paths of a report lead to, each once.
struct Sources {
  std::vector<ComparedRun> runs{};
  std::vector<std::string> comparisons{};
  std::vector<std::string> landscapes{};
  std::vector<std::string> titles{};

  void add(const std::string& path);

 private:
  void add_run(ComparedRun run);
  std::set<std::string> seen_{};
};

void Sources::add_run(ComparedRun run) {
  std::error_code error;
  if (seen_.insert(fs::weakly_canonical(run.path, error).string()).second) runs.push_back(std::move(run));
}

void Sources::add(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw UserError(fmt::format("there is no folder '{}' to report on", path));
  if (!seen_.insert(fs::weakly_canonical(path, error).string() + "/").second) return;
  bool found = false;
  if (has_comparison(path)) {
    ComparisonFile comparison = read_comparison(path);
    comparisons.push_back(std::move(comparison.json));
    titles.push_back(std::move(comparison.title));
    for (ComparedRun& run : comparison.runs) add_run(std::move(run));
    found = true;
  }
  if (has_landscape(path)) {
    LandscapeFile landscape = read_landscape(path);
    landscapes.push_back(std::move(landscape.json));
    titles.push_back(std::move(landscape.title));
    found = true;
  }
  if (has_run(path)) {
    add_run({.path = path, .name = path});
    titles.push_back(path);
    found = true;
  }
  if (!found) {
    throw UserError(fmt::format(
        "'{}' is neither a run (it has no config.toml), nor a comparison (no comparison.json), nor a landscape (no landscape.json)", path));
  }
}

}  // namespace

std::string make_report(const ReportInput& input) {
  if (input.paths.empty()) throw UserError("a report needs at least one run, comparison or landscape");
  Sources sources;
  for (const std::string& path : input.paths) sources.add(without_slashes(path));
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

std::string LiveReport::page() { return make_page(run_path_, data(false), true); }

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
