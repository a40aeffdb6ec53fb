// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/classification_report.h"

#include <gtest/gtest.h>

#include <string>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

// Ten samples of three classes, worked out by hand:
//   class 0: 4 samples, 3 of them found, 5 predicted: precision 3/5, recall 3/4, F1 2·(3/5)(3/4)/(27/20) = 2/3
//   class 1: 3 samples, 2 of them found, 3 predicted: precision 2/3, recall 2/3, F1 2/3
//   class 2: 3 samples, 1 of them found, 2 predicted: precision 1/2, recall 1/3, F1 2/5
const std::vector<std::int32_t> kLabels{0, 0, 0, 0, 1, 1, 1, 2, 2, 2};
const std::vector<std::int32_t> kPredictions{0, 0, 0, 2, 1, 1, 0, 2, 1, 0};

TEST(ClassificationReport, ScoresAreThoseWorkedOutByHand) {
  const ClassificationReport report = classification_report(kLabels, kPredictions, 3);
  EXPECT_DOUBLE_EQ(report.accuracy, 0.6);
  EXPECT_DOUBLE_EQ(report.classes[0].precision, 3.0 / 5);
  EXPECT_DOUBLE_EQ(report.classes[0].recall, 3.0 / 4);
  EXPECT_DOUBLE_EQ(report.classes[0].f1, 2.0 / 3);
  EXPECT_EQ(report.classes[0].support, 4U);
  EXPECT_DOUBLE_EQ(report.classes[1].f1, 2.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes[2].precision, 1.0 / 2);
  EXPECT_DOUBLE_EQ(report.classes[2].recall, 1.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes[2].f1, 2.0 / 5);
  EXPECT_DOUBLE_EQ(report.macro.precision, (3.0 / 5 + 2.0 / 3 + 1.0 / 2) / 3);
  EXPECT_DOUBLE_EQ(report.macro.f1, (2.0 / 3 + 2.0 / 3 + 2.0 / 5) / 3);
  EXPECT_DOUBLE_EQ(report.weighted.recall, 0.6);
  EXPECT_EQ(report.macro.support, 10U);
  const std::vector<std::vector<std::size_t>> confusion{{3, 0, 1}, {1, 2, 0}, {1, 1, 1}};
  EXPECT_EQ(report.confusion, confusion);
}

TEST(ClassificationReport, AClassThatNeverOccursScoresZeroNotNan) {
  const std::vector<std::int32_t> zeros{0, 0};
  const ClassificationReport report = classification_report(zeros, zeros, 2);
  EXPECT_EQ(report.classes[1].precision, 0);
  EXPECT_EQ(report.classes[1].recall, 0);
  EXPECT_EQ(report.classes[1].f1, 0);
  EXPECT_EQ(report.macro.f1, 0.5);
  EXPECT_EQ(classification_report({}, {}, 2).accuracy, 0);
}

TEST(ClassificationReport, AnAnswerOutsideTheClassesIsABrokenInvariant) {
  const std::vector<std::int32_t> bad{3};
  const std::vector<std::int32_t> good{0};
  EXPECT_THROW((void)classification_report(bad, good, 3), BrokenInvariant);
  EXPECT_THROW((void)classification_report(good, bad, 3), BrokenInvariant);
}

TEST(ClassificationReport, TheTextIsAligned) {
  const std::string text = to_text(classification_report(kLabels, kPredictions, 3), {"shirt", "träger", "sandal"});
  EXPECT_EQ(text,
            "        class  precision     recall         F1    support\n"
            "        shirt     0.6000     0.7500     0.6667          4\n"
            "       träger     0.6667     0.6667     0.6667          3\n"
            "       sandal     0.5000     0.3333     0.4000          3\n"
            "\n"
            "         mean     0.5889     0.5833     0.5778         10\n"
            "weighted mean     0.5900     0.6000     0.5867         10\n"
            "\n"
            "    confusion  predicted as\n"
            "                    0  1  2\n"
            "        shirt    0  3  0  1\n"
            "       träger    1  1  2  0\n"
            "       sandal    2  1  1  1\n");
}

}  // namespace
}  // namespace starling::lab
