// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The course of a run, thinned so that a page can draw it: records as they come, of which a bounded number is kept.
//
//   Course course(2000, {Field::loss, Field::gradient_norm});
//   course.add(record);
//   std::string json = to_json(course.records());
//
// As long as there are at most `points` records all are kept. Beyond that the steps are cut into stretches of equal length, a power of two,
// and of each stretch those records stay that are the smallest or the largest of it in one of the named fields: no spike is lost. What is
// kept depends on the records alone, not on when somebody looked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace starling::lab {

// What a record of metrics.jsonl may hold, in the order of kFieldNames.
enum class Field {
  step,
  epoch,
  samples,
  seconds,
  samples_per_second,
  lr,
  batch,
  loss,
  gradient_norm,
  weight_norm,
  train_loss,
  test_loss,
  test_accuracy,
  applications,
  staleness,
  skew,
  bytes_sent,
};
inline constexpr std::array<std::string_view, 17> kFieldNames{
    "step",        "epoch",      "samples",   "seconds",       "samples_per_second", "lr",        "batch", "loss",      "gradient_norm",
    "weight_norm", "train_loss", "test_loss", "test_accuracy", "applications",       "staleness", "skew",  "bytes_sent"};

// One value per field; not a number where there is none.
struct CourseRecord {
  std::array<double, kFieldNames.size()> values;

  CourseRecord();
  double& operator[](Field field) { return values[static_cast<std::size_t>(field)]; }
  double operator[](Field field) const { return values[static_cast<std::size_t>(field)]; }
};

// Not thread-safe.
class Course {
 public:
  // `points` is at least twice the number of fields (checked).
  Course(std::size_t points, std::vector<Field> extremes);

  void add(const CourseRecord& record);

  // In the order in which they came, the very last one always among them: at most points + 1.
  std::vector<CourseRecord> records() const;

 private:
  struct Stretch {
    std::uint64_t number = 0;
    std::vector<CourseRecord> records{};
  };
  void put(const CourseRecord& record);
  void widen();
  void thin(std::vector<CourseRecord>& records) const;

  std::size_t points_;
  std::vector<Field> extremes_;
  std::vector<CourseRecord> all_;  // Until they are too many.
  std::vector<Stretch> stretches_;
  std::uint64_t width_ = 1;
  std::optional<CourseRecord> last_;
};

// {"step": [1, 2], "loss": [0.5, null], ...}: fields that no record has are left out. Seven significant digits; whole numbers have all of
// theirs.
std::string to_json(const std::vector<CourseRecord>& records);

}  // namespace starling::lab
