// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/classification_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

ClassScore score_of(const ClassificationReport& report, std::size_t label) {
  const std::vector<std::vector<std::size_t>>& confusion = report.confusion;
  std::size_t predicted = 0;
  ClassScore score;
  for (std::size_t other = 0; other < confusion.size(); ++other) {
    predicted += confusion[other][label];
    score.support += confusion[label][other];
  }
  const auto hits = static_cast<double>(confusion[label][label]);
  score.precision = ratio(hits, static_cast<double>(predicted));
  score.recall = ratio(hits, static_cast<double>(score.support));
  score.f1 = ratio(2 * score.precision * score.recall, score.precision + score.recall);
  return score;
}

// Characters, not bytes: names may have others than those of English.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width) {
  std::string result(width - std::min(width, width_of(text)), ' ');
  result += text;
  return result;
}

std::string line_of(const std::string& name, std::size_t width, const ClassScore& score) {
  return fmt::format("{}  {:>9.4f}  {:>9.4f}  {:>9.4f}  {:>9}\n", padded(name, width), score.precision, score.recall, score.f1,
                     score.support);
}

}  // namespace

ClassificationReport classification_report(std::span<const std::int32_t> labels, std::span<const std::int32_t> predictions, int classes) {
  STARLING_CHECK(labels.size() == predictions.size(), fmt::format("{} labels, but {} predictions", labels.size(), predictions.size()));
  ClassificationReport report;
  const auto count = static_cast<std::size_t>(classes);
  report.confusion.assign(count, std::vector<std::size_t>(count));
  std::size_t hits = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    STARLING_CHECK(labels[i] >= 0 && labels[i] < classes && predictions[i] >= 0 && predictions[i] < classes,
                   fmt::format("sample {} has the label {} and the prediction {}, of {} classes", i, labels[i], predictions[i], classes));
    ++report.confusion[static_cast<std::size_t>(labels[i])][static_cast<std::size_t>(predictions[i])];
    hits += labels[i] == predictions[i] ? 1 : 0;
  }
  const auto total = static_cast<double>(labels.size());
  report.accuracy = ratio(static_cast<double>(hits), total);
  for (std::size_t label = 0; label < count; ++label) report.classes.push_back(score_of(report, label));
  const auto add = [](ClassScore& mean, const ClassScore& score, double weight) {
    mean.precision += weight * score.precision;
    mean.recall += weight * score.recall;
    mean.f1 += weight * score.f1;
    mean.support += score.support;
  };
  for (const ClassScore& score : report.classes) {
    add(report.macro, score, 1 / static_cast<double>(count));
    add(report.weighted, score, ratio(static_cast<double>(score.support), total));
  }
  return report;
}

std::string to_text(const ClassificationReport& report, const std::vector<std::string>& names) {
  std::size_t width = width_of("weighted mean");
  std::vector<std::string> all;
  for (std::size_t i = 0; i < report.classes.size(); ++i) {
    all.push_back(i < names.size() ? names[i] : fmt::format("class {}", i));
    width = std::max(width, width_of(all.back()));
  }
  std::string text = fmt::format("{}  {:>9}  {:>9}  {:>9}  {:>9}\n", padded("class", width), "precision", "recall", "F1", "support");
  for (std::size_t i = 0; i < all.size(); ++i) text += line_of(all[i], width, report.classes[i]);
  text += "\n";
  text += line_of("mean", width, report.macro);
  text += line_of("weighted mean", width, report.weighted);

  std::size_t largest = all.size();
  for (const std::vector<std::size_t>& row : report.confusion) largest = std::max(largest, *std::max_element(row.begin(), row.end()));
  const std::size_t column = std::to_string(largest).size() + 2;
  text += fmt::format("\n{}  predicted as\n{}", padded("confusion", width), std::string(width + 5, ' '));
  for (std::size_t i = 0; i < all.size(); ++i) text += fmt::format("{:>{}}", i, column);
  text += "\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += fmt::format("{} {:>4}", padded(all[i], width), i);
    for (const std::size_t count : report.confusion[i]) text += fmt::format("{:>{}}", count, column);
    text += "\n";
  }
  return text;
}

}  // namespace starling::lab
