// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/report_course.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

// Whole numbers up to this are exact in a double.
constexpr double kLargestWhole = 9007199254740992.0;

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  if (value == std::floor(value) && std::abs(value) <= kLargestWhole) return fmt::format("{:.0f}", value);
  return fmt::format("{:.7g}", value);
}

std::uint64_t step_of(const CourseRecord& record) {
  const double step = record[Field::step];
  return step > 0 ? static_cast<std::uint64_t>(std::min(step, kLargestWhole)) : 0;
}

}  // namespace

CourseRecord::CourseRecord() { values.fill(std::numeric_limits<double>::quiet_NaN()); }

Course::Course(std::size_t points, std::vector<Field> extremes) : points_(points), extremes_(std::move(extremes)) {
  STARLING_CHECK(!extremes_.empty() && points_ >= 2 * extremes_.size(), "too few points to keep the extremes of one stretch");
}

void Course::add(const CourseRecord& record) {
  last_ = record;
  if (!stretches_.empty()) {
    put(record);
    return;
  }
  all_.push_back(record);
  if (all_.size() <= points_) return;
  for (const CourseRecord& earlier : all_) put(earlier);
  all_.clear();
  all_.shrink_to_fit();
}

void Course::put(const CourseRecord& record) {
  // Records come in the order of their steps. Should a file have it otherwise, they stay in the order of the file.
  const std::uint64_t number = std::max(step_of(record) / width_, stretches_.empty() ? 0 : stretches_.back().number);
  if (stretches_.empty() || stretches_.back().number != number) stretches_.push_back({.number = number});
  stretches_.back().records.push_back(record);
  thin(stretches_.back().records);
  while (stretches_.size() * 2 * extremes_.size() > points_) widen();
}

void Course::widen() {
  width_ *= 2;
  std::vector<Stretch> wider;
  for (Stretch& stretch : stretches_) {
    const std::uint64_t number = stretch.number / 2;
    if (wider.empty() || wider.back().number != number) {
      wider.push_back({.number = number, .records = std::move(stretch.records)});
    } else {
      std::vector<CourseRecord>& records = wider.back().records;
      std::move(stretch.records.begin(), stretch.records.end(), std::back_inserter(records));
      thin(records);
    }
  }
  stretches_ = std::move(wider);
}

// The extremes of a union are among the extremes of its parts, so thinning twice is thinning once. A record without any of the fields
// stays only as long as it is alone.
void Course::thin(std::vector<CourseRecord>& records) const {
  if (records.size() < 2) return;
  std::vector<bool> keep(records.size(), false);
  for (const Field field : extremes_) {
    std::optional<std::size_t> least;
    std::optional<std::size_t> most;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const double value = records[i][field];
      if (std::isnan(value)) continue;
      if (!least || value < records[*least][field]) least = i;
      if (!most || value > records[*most][field]) most = i;
    }
    if (least) keep[*least] = true;
    if (most) keep[*most] = true;
  }
  std::vector<CourseRecord> kept;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (keep[i]) kept.push_back(records[i]);
  }
  if (kept.empty()) kept.push_back(records.front());
  records = std::move(kept);
}

std::vector<CourseRecord> Course::records() const {
  if (stretches_.empty()) return all_;
  std::vector<CourseRecord> result;
  for (const Stretch& stretch : stretches_) result.insert(result.end(), stretch.records.begin(), stretch.records.end());
  if (result.back()[Field::step] != (*last_)[Field::step]) result.push_back(*last_);
  return result;
}

std::string to_json(const std::vector<CourseRecord>& records) {
  std::string text = "{";
  for (std::size_t field = 0; field < kFieldNames.size(); ++field) {
    const auto has = [field](const CourseRecord& record) { return !std::isnan(record.values[field]); };
    if (std::none_of(records.begin(), records.end(), has)) continue;
    text += fmt::format("{}\"{}\":[", text.size() > 1 ? "," : "", kFieldNames[field]);
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (i > 0) text += ',';
      text += number_text(records[i].values[field]);
    }
    text += ']';
  }
  return text + "}";
}

}  // namespace starling::lab
