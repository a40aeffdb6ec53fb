// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Tables of a comparison: rows and columns of labels, in every field mean and deviation over the seeds, or how the runs ended.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "starling/lab/comparison_result.h"

namespace starling::lab {

enum class TableForm {
  plain,     // Columns aligned with blanks, for a terminal.
  markdown,  // As GitHub shows it.
};

// One table for each of the comparison's values, with its name. Where a plain one would be wider than so many characters, axes go from the
// columns to the rows, until all tables fit or there is one row per cell.
constexpr std::size_t kAnyWidth = std::numeric_limits<std::size_t>::max();
std::string to_tables(const ComparisonResult& result, TableForm form, std::size_t width = kAnyWidth);

// "87.50 ± 0.41", "NC", "61.20 ± 3.00 (1 of 3 NC)", "failed"; "-" where nothing has ended yet. Fractions such as accuracies in per cent.
std::string field_text(const CellOutcome& cell, const std::string& value);

// "test accuracy (%)".
std::string title_of(const std::string& value);

// Fields in rows, of which the first is the heading. All rows have the same length.
std::string format_rows(const std::vector<std::vector<std::string>>& rows, TableForm form);

// With blanks in the place of control characters, which could move a terminal's cursor or end a row.
std::string printable(const std::string& text);

}  // namespace starling::lab
