// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How well classes are told apart: precision, recall and F1 of every class, their means, and who is taken for whom.
//
//   ClassificationReport report = classification_report(labels, predictions, 10);
//   double recall = report.classes[3].recall;
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::lab {

struct ClassScore {
  double precision = 0;     // Of what was predicted to be this class, the part that is. 0 where nothing was predicted.
  double recall = 0;        // Of what is this class, the part that was predicted so. 0 where nothing is.
  double f1 = 0;            // Their harmonic mean; 0 where both are.
  std::size_t support = 0;  // Samples of this class.
};

struct ClassificationReport {
  std::vector<ClassScore> classes{};
  ClassScore macro{};     // Plain means over the classes.
  ClassScore weighted{};  // Means weighted by support.
  double accuracy = 0;
  std::vector<std::vector<std::size_t>> confusion{};  // [label][prediction]
};

// Both have one element per sample, each in 0 … classes - 1 (checked).
ClassificationReport classification_report(std::span<const std::int32_t> labels, std::span<const std::int32_t> predictions, int classes);

// Two tables in aligned columns, the scores and the confusion matrix. `names` has one name per class, or is empty.
std::string to_text(const ClassificationReport& report, const std::vector<std::string>& names);

}  // namespace starling::lab
