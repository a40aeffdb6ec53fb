// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What is made of the runs of a comparison: which count, means, tables, CSV, JSON.
#include "starling/lab/comparison_result.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "starling/lab/comparison_table.h"

namespace starling::lab {
namespace {

RunOutcome finished(std::uint64_t seed, double accuracy) {
  return {.seed = seed,
          .path = "cells/x/seed-" + std::to_string(seed),
          .ending = "finished",
          .converged = true,
          .values = {{"test_accuracy", accuracy}}};
}

RunOutcome not_converged(std::uint64_t seed) { return {.seed = seed, .ending = "diverged", .reason = "at step 3 the loss is nan"}; }

RunOutcome failed(std::uint64_t seed) { return {.seed = seed, .ending = "failed", .reason = "rank 1 was lost"}; }

std::string result_json(const std::string& ending, const std::string& classes, bool balanced = true) {
  return R"({"ending":")" + ending + R"(","reason":"","seed":7,"test_accuracy":0.5,"test_loss":null,"seconds":2,)" +
         R"("staleness":{"version":{"mean":1.5}},"bytes_sent":123,"weights_sha256":"ab","balanced":)" + (balanced ? "true" : "false") +
         R"(,"classes":)" + classes + "}";
}

TEST(ComparisonOutcome, ReadsTheResultOfARun) {
  const std::optional<RunOutcome> outcome = read_outcome(result_json("finished", "null"));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->converged);
  EXPECT_EQ(outcome->seed, 7U);
  EXPECT_EQ(outcome->weights_sha256, "ab");
  EXPECT_EQ(outcome->values.at("test_accuracy"), 0.5);
  EXPECT_EQ(outcome->values.at("staleness"), 1.5);
  EXPECT_EQ(outcome->values.at("bytes_sent"), 123);
  EXPECT_EQ(outcome->values.at("test_loss"), std::nullopt);
  EXPECT_EQ(outcome->values.at("steps"), std::nullopt);
}

TEST(ComparisonOutcome, OneAnswerForEverythingIsNotConverged) {
  const std::string constant = R"({"names":["cat","dog"],"confusion":[[0,5],[0,7]]})";
  const std::optional<RunOutcome> outcome = read_outcome(result_json("finished", constant));
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->converged);
  EXPECT_FALSE(outcome->failed());
  EXPECT_EQ(outcome->reason, "the answer is 'dog' for the whole test set");
  const std::string nearly = R"({"names":["cat","dog"],"confusion":[[1,4],[0,7]]})";
  EXPECT_TRUE(read_outcome(result_json("finished", nearly))->converged);
}

TEST(ComparisonOutcome, DivergedAndUnbalancedRuns) {
  EXPECT_FALSE(read_outcome(result_json("diverged", "null"))->converged);
  EXPECT_FALSE(read_outcome(result_json("diverged", "null"))->failed());
  EXPECT_TRUE(read_outcome(result_json("finished", "null", false))->failed());
}

TEST(ComparisonOutcome, WhatHasNotEndedIsNone) {
  EXPECT_FALSE(read_outcome(result_json("interrupted", "null")));
  const std::string whole = result_json("finished", "null");
  for (std::size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(read_outcome(whole.substr(0, length)));
  EXPECT_FALSE(read_outcome("[]"));
  EXPECT_FALSE(read_outcome(R"({"ending":1})"));
}

TEST(ComparisonSummary, MeanAndDeviationOfTheSample) {
  const CellOutcome cell{.runs = {finished(1, 0.5), finished(2, 0.7), finished(3, 0.9)}};
  const Summary summary = cell.summary("test_accuracy");
  EXPECT_EQ(summary.count, 3U);
  EXPECT_NEAR(*summary.mean, 0.7, 1e-15);
  EXPECT_NEAR(*summary.deviation, 0.2, 1e-15);
  EXPECT_EQ(summary.minimum, 0.5);
  EXPECT_EQ(summary.maximum, 0.9);
}

TEST(ComparisonSummary, OneRunHasNoDeviationAndEqualOnesHaveNone) {
  EXPECT_EQ(CellOutcome{.runs = {finished(1, 0.5)}}.summary("test_accuracy").deviation, std::nullopt);
  const CellOutcome equal{.runs = {finished(1, 0.1), finished(2, 0.1), finished(3, 0.1)}};
  EXPECT_EQ(equal.summary("test_accuracy").deviation, 0);
  EXPECT_EQ(equal.summary("test_accuracy").mean, 0.1);
}

TEST(ComparisonSummary, OnlyRunsThatConvergedCount) {
  const CellOutcome cell{.runs = {finished(1, 0.5), not_converged(2), failed(3)}};
  const Summary summary = cell.summary("test_accuracy");
  EXPECT_EQ(summary.count, 1U);
  EXPECT_EQ(summary.mean, 0.5);
  EXPECT_EQ(summary.not_converged, 1U);
  EXPECT_EQ(summary.failed, 1U);
  const CellOutcome unknown{.runs = {finished(1, std::numeric_limits<double>::quiet_NaN())}};
  EXPECT_EQ(unknown.summary("test_accuracy").mean, std::nullopt);
}

TEST(ComparisonTable, FieldsSayHowTheRunsEnded) {
  const auto text = [](std::vector<RunOutcome> runs) { return field_text({.runs = std::move(runs)}, "test_accuracy"); };
  EXPECT_EQ(text({finished(1, 0.875)}), "87.50");
  EXPECT_EQ(text({finished(1, 0.87), finished(2, 0.88)}), "87.50 ± 0.71");
  EXPECT_EQ(text({not_converged(1), not_converged(2)}), "NC");
  EXPECT_EQ(text({finished(1, 0.6), finished(2, 0.62), not_converged(3)}), "61.00 ± 1.41 (1 of 3 NC)");
  EXPECT_EQ(text({finished(1, 0.6), failed(2), not_converged(3)}), "60.00 (1 of 3 NC, 1 of 3 failed)");
  EXPECT_EQ(text({failed(1), failed(2)}), "failed");
  EXPECT_EQ(text({failed(1), not_converged(2)}), "NC (1 of 2 failed)");
  EXPECT_EQ(text({}), "-");
  EXPECT_EQ(field_text({.runs = {finished(1, 0.6)}}, "test_loss"), "unknown");
  RunOutcome slow = finished(1, 0.5);
  slow.values["seconds"] = 1234.567;
  EXPECT_EQ(field_text({.runs = {slow}}, "seconds"), "1235");
}

// Three axes of 2 × 1 × 2 labels; the accuracy of cell i is i / 10.
ComparisonResult small_result() {
  ComparisonResult result{.title = "T", .command = "starling compare t.toml"};
  result.axes = {{.name = "method", .labels = {"sync", "a|b, \"c\""}},
                 {.name = "split", .labels = {"ünï"}},
                 {.name = "workers", .labels = {"2", "10"}}};
  result.rows = {"method"};
  result.columns = {"split", "workers"};
  result.seeds = {1};
  result.values = {"test_accuracy"};
  for (const char* method : {"sync", "a|b, \"c\""}) {
    for (const char* workers : {"2", "10"}) {
      const double accuracy = static_cast<double>(result.cells.size()) / 10;
      result.cells.push_back({.labels = {method, "ünï", workers}, .runs = {finished(1, accuracy)}});
    }
  }
  return result;
}

TEST(ComparisonTable, RowsAndColumns) {
  EXPECT_EQ(to_tables(small_result(), TableForm::plain),
            "test accuracy (%)\n"
            "method \\ split / workers  ünï / 2  ünï / 10\n"
            "------------------------  -------  --------\n"
            "sync                         0.00     10.00\n"
            "a|b, \"c\"                    20.00     30.00\n");
}

TEST(ComparisonTable, SidesMayBeExchangedOrMadeOfSeveralAxes) {
  ComparisonResult result = small_result();
  result.rows = {"workers", "method"};
  result.columns = {"split"};
  EXPECT_EQ(to_tables(result, TableForm::plain),
            "test accuracy (%)\n"
            "workers / method \\ split    ünï\n"
            "------------------------  -----\n"
            "2 / sync                   0.00\n"
            "2 / a|b, \"c\"              20.00\n"
            "10 / sync                 10.00\n"
            "10 / a|b, \"c\"             30.00\n");
  result.rows = {"workers", "method", "split"};
  result.columns = {};
  const std::string text = to_tables(result, TableForm::plain);
  EXPECT_EQ(text.rfind("workers / method / split  test accuracy (%)\n", 0), 0U) << text;
}

TEST(ComparisonTable, WhatIsTooWideGetsMoreRows) {
  const ComparisonResult result = small_result();
  const std::string whole = to_tables(result, TableForm::plain);
  EXPECT_EQ(to_tables(result, TableForm::plain, 43), whole);
  const std::string one_moved =
      "test accuracy (%)\n"
      "method / split \\ workers      2     10\n"
      "------------------------  -----  -----\n"
      "sync / ünï                 0.00  10.00\n"
      "a|b, \"c\" / ünï            20.00  30.00\n";
  EXPECT_EQ(to_tables(result, TableForm::plain, 42), one_moved);
  EXPECT_EQ(to_tables(result, TableForm::plain, 38), one_moved);
  const std::string lines = to_tables(result, TableForm::plain, 37);
  EXPECT_EQ(lines.rfind("method / split / workers  test accuracy (%)\n", 0), 0U) << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 6);
  EXPECT_EQ(to_tables(result, TableForm::plain, 1), lines);  // It does not get any narrower.
  EXPECT_EQ(to_tables(result, TableForm::markdown, 1), to_tables(result, TableForm::markdown));
}

TEST(ComparisonTable, ControlCharactersAreReplaced) {
  EXPECT_EQ(printable("a\x1b[2Jb\nc\rd\x7f\xc2\x9b"
                      "e ünï"),
            "a [2Jb c d  e ünï");
  ComparisonResult result = small_result();
  result.axes[0].labels[0] = "x\x1b[31m\ny";
  for (const TableForm form : {TableForm::plain, TableForm::markdown}) {
    const std::string text = to_tables(result, form);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_NE(text.find("x [31m y"), std::string::npos) << text;
  }
}

TEST(ComparisonTable, Markdown) {
  EXPECT_EQ(to_tables(small_result(), TableForm::markdown),
            "**test accuracy (%)**\n\n"
            "| method \\\\ split / workers | ünï / 2 | ünï / 10 |\n"
            "| ------------------------- | ------: | -------: |\n"
            "| sync                      |    0.00 |    10.00 |\n"
            "| a\\|b, \"c\"                 |   20.00 |    30.00 |\n");
}

TEST(ComparisonCsv, QuotesWhatItMust) {
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(csv_field(""), "");
}

TEST(ComparisonCsv, HasOneRowPerRun) {
  ComparisonResult result = small_result();
  result.cells[2].runs.push_back(failed(2));
  result.cells[2].runs[1].reason = "a, b\nc";
  result.cells[0].runs[0].values["bytes_sent"] = 123456789;
  result.cells[0].runs[0].weights_sha256 = "ff";
  const std::string text = to_csv(result);
  EXPECT_EQ(
      text.substr(0, text.find("\r\n")),
      "method,split,workers,seed,path,ending,converged,reason,test_accuracy,test_loss,train_loss,seconds,samples_per_second,staleness,"
      "bytes_sent,idle_fraction,steps,samples,weights_sha256");
  EXPECT_NE(text.find("\r\nsync,ünï,2,1,cells/x/seed-1,finished,true,,0.0,,,,,,123456789,,,,ff\r\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\r\n\"a|b, \"\"c\"\"\",ünï,2,2,,failed,false,\"a, b\nc\",,,,,,,,,,,\r\n"), std::string::npos) << text;
}

TEST(ComparisonJson, HasEverything) {
  ComparisonResult result = small_result();
  result.cells[0].runs[0].values["bytes_sent"] = 123456789;
  result.cells[1].runs = {not_converged(1)};
  result.cells[3].runs = {};
  const nlohmann::json json = nlohmann::json::parse(to_json(result));
  EXPECT_EQ(json["title"], "T");
  EXPECT_EQ(json["command"], "starling compare t.toml");
  EXPECT_EQ(json["axes"][2], (nlohmann::json{{"name", "workers"}, {"labels", {"2", "10"}}}));
  EXPECT_EQ(json["rows"], nlohmann::json({"method"}));
  EXPECT_EQ(json["cells"][0]["runs"][0]["bytes_sent"], 123456789);
  EXPECT_TRUE(json["cells"][0]["runs"][0]["bytes_sent"].is_number_integer());
  EXPECT_TRUE(json["cells"][0]["runs"][0]["test_loss"].is_null());
  EXPECT_EQ(json["cells"][2]["summary"]["test_accuracy"]["mean"], 0.2);
  EXPECT_TRUE(json["cells"][2]["summary"]["test_accuracy"]["deviation"].is_null());
  EXPECT_EQ(json["cells"][1]["summary"]["test_accuracy"]["not_converged"], 1);
  EXPECT_TRUE(json["cells"][1]["summary"]["test_accuracy"]["mean"].is_null());
  EXPECT_EQ(json["cells"][3]["runs"], nlohmann::json::array());
}

}  // namespace
}  // namespace starling::lab
