// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/report_course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "starling/base/random.h"

namespace starling::lab {
namespace {

CourseRecord record_of(double step, double loss, double norm = std::numeric_limits<double>::quiet_NaN()) {
  CourseRecord record;
  record[Field::step] = step;
  record[Field::loss] = loss;
  record[Field::gradient_norm] = norm;
  return record;
}

std::vector<double> values_of(const std::vector<CourseRecord>& records, Field field) {
  std::vector<double> result;
  for (const CourseRecord& record : records) result.push_back(record[field]);
  return result;
}

TEST(Course, KeepsEverythingAsLongAsItFits) {
  Course course(10, {Field::loss});
  for (int step = 1; step <= 10; ++step) course.add(record_of(100 * step, step));
  EXPECT_EQ(values_of(course.records(), Field::loss), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(Course, KeepsSpikesOfLongCourses) {
  constexpr std::size_t kPoints = 200;
  Course course(kPoints, {Field::loss, Field::gradient_norm});
  constexpr int kSteps = 100'000;
  for (int step = 1; step <= kSteps; ++step) {
    course.add(record_of(step, step == 777 ? 50 : (step == 40'404 ? -3 : 1), step == 90'001 ? 1e6 : 2));
  }
  const std::vector<CourseRecord> records = course.records();
  EXPECT_LE(records.size(), kPoints + 1);
  EXPECT_GE(records.size(), kPoints / 4 / 2);
  const std::vector<double> losses = values_of(records, Field::loss);
  EXPECT_EQ(std::count(losses.begin(), losses.end(), 50), 1);
  EXPECT_EQ(std::count(losses.begin(), losses.end(), -3), 1);
  const std::vector<double> norms = values_of(records, Field::gradient_norm);
  EXPECT_EQ(std::count(norms.begin(), norms.end(), 1e6), 1);
  const std::vector<double> steps = values_of(records, Field::step);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(steps.back(), kSteps);
}

// What is kept of a stretch are its extremes, found here by looking at all records at once.
std::vector<CourseRecord> thinned_at_once(const std::vector<CourseRecord>& records, std::size_t points, const std::vector<Field>& fields) {
  if (records.size() <= points) return records;
  std::vector<CourseRecord> result;
  for (std::uint64_t width = 1;; width *= 2) {
    std::vector<std::vector<CourseRecord>> stretches;
    std::uint64_t number = 0;
    for (const CourseRecord& record : records) {
      const std::uint64_t own = static_cast<std::uint64_t>(record[Field::step]) / width;
      if (stretches.empty() || own != number) stretches.emplace_back();
      number = own;
      stretches.back().push_back(record);
    }
    if (stretches.size() * 2 * fields.size() > points) continue;
    for (const std::vector<CourseRecord>& stretch : stretches) {
      std::vector<bool> keep(stretch.size(), false);
      for (const Field field : fields) {
        const auto less = [field](const CourseRecord& a, const CourseRecord& b) { return a[field] < b[field]; };
        keep[static_cast<std::size_t>(std::min_element(stretch.begin(), stretch.end(), less) - stretch.begin())] = true;
        keep[static_cast<std::size_t>(std::max_element(stretch.begin(), stretch.end(), less) - stretch.begin())] = true;
      }
      for (std::size_t i = 0; i < stretch.size(); ++i) {
        if (keep[i]) result.push_back(stretch[i]);
      }
    }
    break;
  }
  if (result.back()[Field::step] != records.back()[Field::step]) result.push_back(records.back());
  return result;
}

TEST(Course, ThinsARunThatGrowsAsItThinsOneThatHasEnded) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomStream random(seed, 0, "course");
    const std::size_t points = 8 + random.below(200);
    const std::size_t count = 1 + random.below(3000);
    const std::vector<Field> fields{Field::loss, Field::gradient_norm};
    Course course(points, fields);
    std::vector<CourseRecord> all;
    double step = 0;
    for (std::size_t i = 0; i < count; ++i) {
      step += static_cast<double>(1 + random.below(7));
      all.push_back(record_of(step, static_cast<double>(random.below(50)), random.uniform()));
      course.add(all.back());
    }
    const std::vector<CourseRecord> expected = thinned_at_once(all, points, fields);
    const std::vector<CourseRecord> actual = course.records();
    EXPECT_LE(actual.size(), points + 1);
    ASSERT_EQ(values_of(actual, Field::step), values_of(expected, Field::step));
    ASSERT_EQ(values_of(actual, Field::loss), values_of(expected, Field::loss));
  }
}

TEST(Course, RecordsWithoutTheFieldsDoNotCrowdOut) {
  Course course(8, {Field::loss});
  for (int step = 1; step <= 1000; ++step) course.add(record_of(step, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_LE(course.records().size(), 9U);
  EXPECT_EQ(course.records().back()[Field::step], 1000);
}

TEST(Course, StepsThatGoBackStayInTheirOrder) {
  Course course(4, {Field::loss});
  for (const int step : {1, 50, 3, 60, 2, 70, 80, 90}) course.add(record_of(step, step));
  EXPECT_EQ(course.records().back()[Field::step], 90);
  EXPECT_LE(course.records().size(), 5U);
}

TEST(CourseJson, LeavesOutWhatNoRecordHas) {
  EXPECT_EQ(to_json(std::vector<CourseRecord>{}), "{}");
  const nlohmann::json json =
      nlohmann::json::parse(to_json(std::vector<CourseRecord>{record_of(1, 0.1), record_of(123'456'789'012.0, NAN)}));
  EXPECT_EQ(json.size(), 2U);
  EXPECT_EQ(json["step"], nlohmann::json::parse("[1, 123456789012]"));
  EXPECT_EQ(json["loss"], nlohmann::json::parse("[0.1, null]"));
}

TEST(CourseJson, WritesNumbersThatJsonKnows) {
  const double infinity = std::numeric_limits<double>::infinity();
  const nlohmann::json json = nlohmann::json::parse(
      to_json(std::vector<CourseRecord>{record_of(1, infinity), record_of(2, 1.5e-9), record_of(3, -2.25e300), record_of(4, 1.0 / 3)}));
  EXPECT_TRUE(json["loss"][0].is_null());
  EXPECT_EQ(json["loss"][1], 1.5e-9);
  EXPECT_EQ(json["loss"][2], -2.25e300);
  EXPECT_NEAR(json["loss"][3].get<double>(), 1.0 / 3, 1e-7);
}

}  // namespace
}  // namespace starling::lab
