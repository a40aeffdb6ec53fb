// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/comparison_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace starling::lab {
namespace {

bool is_fraction(const std::string& value) { return value == "test_accuracy" || value == "idle_fraction"; }

std::string number_text(const std::string& value, double number) {
  constexpr double kPerCent = 100;
  return is_fraction(value) ? fmt::format("{:.2f}", kPerCent * number) : fmt::format("{:.4g}", number);
}

// A byte that continues a character of UTF-8 has no width.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char character : text) {
    if (character == '|' || character == '\\') result += '\\';
    result += character;
  }
  return result;
}

// One side of a table: which axes make it, and all combinations of their labels, the last changing fastest.
struct Side {
  std::vector<std::size_t> axes{};
  std::vector<std::vector<std::size_t>> combinations{{}};
};

Side make_side(const ComparisonResult& result, const std::vector<std::string>& names) {
  Side side;
  for (const std::string& name : names) {
    const auto found = std::find_if(result.axes.begin(), result.axes.end(), [&](const Axis& axis) { return axis.name == name; });
    side.axes.push_back(static_cast<std::size_t>(found - result.axes.begin()));
    std::vector<std::vector<std::size_t>> longer;
    for (const std::vector<std::size_t>& combination : side.combinations) {
      for (std::size_t label = 0; label < found->labels.size(); ++label) {
        longer.push_back(combination);
        longer.back().push_back(label);
      }
    }
    side.combinations = std::move(longer);
  }
  return side;
}

std::string label_of(const ComparisonResult& result, const Side& side, const std::vector<std::size_t>& combination) {
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < side.axes.size(); ++i) labels.push_back(result.axes[side.axes[i]].labels[combination[i]]);
  return fmt::format("{}", fmt::join(labels, " / "));
}

const CellOutcome& cell_at(const ComparisonResult& result, const Side& rows, const std::vector<std::size_t>& row, const Side& columns,
                           const std::vector<std::size_t>& column) {
  std::vector<std::size_t> chosen(result.axes.size());
  for (std::size_t i = 0; i < rows.axes.size(); ++i) chosen[rows.axes[i]] = row[i];
  for (std::size_t i = 0; i < columns.axes.size(); ++i) chosen[columns.axes[i]] = column[i];
  std::size_t index = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) index = index * result.axes[i].labels.size() + chosen[i];
  return result.cells.at(index);
}

std::vector<std::vector<std::string>> rows_of(const ComparisonResult& result, const std::string& value) {
  const Side rows = make_side(result, result.rows);
  const Side columns = make_side(result, result.columns);
  const std::string across = fmt::format("{}", fmt::join(result.columns, " / "));
  const std::string down = fmt::format("{}", fmt::join(result.rows, " / "));
  std::vector<std::vector<std::string>> table;
  table.push_back({across.empty() ? down : down.empty() ? across : fmt::format("{} \\ {}", down, across)});
  for (const std::vector<std::size_t>& column : columns.combinations) {
    table[0].push_back(columns.axes.empty() ? title_of(value) : label_of(result, columns, column));
  }
  for (const std::vector<std::size_t>& row : rows.combinations) {
    table.push_back({rows.axes.empty() ? title_of(value) : label_of(result, rows, row)});
    for (const std::vector<std::size_t>& column : columns.combinations) {
      table.back().push_back(field_text(cell_at(result, rows, row, columns, column), value));
    }
  }
  return table;
}

}  // namespace

std::string title_of(const std::string& value) {
  static const std::map<std::string, std::string> kTitles{{"test_accuracy", "test accuracy (%)"},
                                                          {"test_loss", "test loss"},
                                                          {"train_loss", "train loss"},
                                                          {"seconds", "seconds"},
                                                          {"samples_per_second", "samples per second"},
                                                          {"staleness", "staleness (versions)"},
                                                          {"bytes_sent", "bytes sent"},
                                                          {"idle_fraction", "idle (%)"},
                                                          {"steps", "steps"},
                                                          {"samples", "samples"}};
  return kTitles.at(value);
}

std::string field_text(const CellOutcome& cell, const std::string& value) {
  if (cell.runs.empty()) return "-";
  const Summary summary = cell.summary(value);
  const std::size_t all = cell.runs.size();
  if (summary.not_converged + summary.failed == all) {
    if (summary.failed == all) return "failed";
    return summary.failed == 0 ? "NC" : fmt::format("NC ({} of {} failed)", summary.failed, all);
  }
  std::string text = summary.mean ? number_text(value, *summary.mean) : "unknown";
  if (summary.deviation) text += fmt::format(" ± {}", number_text(value, *summary.deviation));
  std::vector<std::string> others;
  if (summary.not_converged > 0) others.push_back(fmt::format("{} of {} NC", summary.not_converged, all));
  if (summary.failed > 0) others.push_back(fmt::format("{} of {} failed", summary.failed, all));
  return others.empty() ? text : fmt::format("{} ({})", text, fmt::join(others, ", "));
}

std::string printable(const std::string& text) {
  std::string result = text;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto byte = static_cast<unsigned char>(result[i]);
    constexpr unsigned char kDelete = 0x7f;
    if (byte < ' ' || byte == kDelete) result[i] = ' ';
    // From U+0080 to U+009F, in UTF-8.
    if (byte == 0xC2 && i + 1 < result.size() && static_cast<unsigned char>(result[i + 1]) < 0xA0) result.replace(i, 2, " ");
  }
  return result;
}

std::string format_rows(const std::vector<std::vector<std::string>>& rows, TableForm form) {
  const bool markdown = form == TableForm::markdown;
  std::vector<std::vector<std::string>> fields = rows;
  std::vector<std::size_t> widths(rows.at(0).size(), markdown ? 4 : 1);
  for (std::vector<std::string>& row : fields) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(row[i]);
      if (markdown) row[i] = escaped(row[i]);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string text;
  for (std::size_t number = 0; number < fields.size(); ++number) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string blanks(widths[i] - width_of(fields[number][i]), ' ');
      const std::string padded = i == 0 ? fields[number][i] + blanks : blanks + fields[number][i];  // Numbers to the right.
      line += markdown ? fmt::format("| {} ", padded) : fmt::format("{}{}", i == 0 ? "" : "  ", padded);
    }
    if (markdown) line += '|';
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{}\n", line);
    if (number > 0) continue;
    std::string rule;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string dashes(widths[i], '-');
      rule += markdown ? fmt::format("| {}{} ", dashes.substr(1), i == 0 ? '-' : ':') : fmt::format("{}{}", i == 0 ? "" : "  ", dashes);
    }
    text += fmt::format("{}{}\n", rule, markdown ? "|" : "");
  }
  return text;
}

namespace {

std::string tables_as_laid_out(const ComparisonResult& result, TableForm form) {
  std::string text;
  const bool always = result.columns.empty() || result.rows.empty();  // Then the table itself says what it shows.
  for (const std::string& value : result.values) {
    if (!text.empty()) text += '\n';
    if (!always) text += form == TableForm::markdown ? fmt::format("**{}**\n\n", title_of(value)) : fmt::format("{}\n", title_of(value));
    text += format_rows(rows_of(result, value), form);
  }
  return text;
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    widest = std::max(widest, width_of(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return widest;
}

}  // namespace

std::string to_tables(const ComparisonResult& result, TableForm form, std::size_t width) {
  std::string text = tables_as_laid_out(result, form);
  if (form != TableForm::plain) return text;
  ComparisonResult narrower = result;
  while (!narrower.columns.empty() && widest_line(text) > width) {
    narrower.rows.push_back(narrower.columns.front());
    narrower.columns.erase(narrower.columns.begin());
    text = tables_as_laid_out(narrower, form);
  }
  return text;
}

}  // namespace starling::lab
