// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// `starling report` as its users meet it; the page itself is tested in a browser, in tests/report.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "unit/cli/program.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;

std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ReportProgram : public testing::Test {
 protected:
  ReportProgram() : folder_(testing::TempDir() + "starling_report_program_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const Ran ran = run("train --model 'dense 3' --data blobs:classes=3,samples=60 --epochs 1 --snapshots 2 --out " + path("runs/a"));
    EXPECT_EQ(ran.code, 0) << ran.output;
  }
  ~ReportProgram() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(ReportProgram, ReplacesNothingButPages) {
  const std::string metrics = contents_of(path("runs/a/metrics.jsonl"));
  ASSERT_FALSE(metrics.empty());
  expect_mistake("report " + path("runs/a") + " --out " + path("runs/a/metrics.jsonl"),
                 path("runs/a/metrics.jsonl") + "' exists and is no report of Starling: remove it, or choose another file with --out");
  EXPECT_EQ(contents_of(path("runs/a/metrics.jsonl")), metrics);
  for (int i = 0; i < 2; ++i) {
    const Ran ran = run("report " + path("runs/a") + " --out " + path("page.html"));
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_EQ(ran.output, path("page.html") + "\n");
  }
}

TEST_F(ReportProgram, WritesToStandardOutput) {
  ASSERT_EQ(run("report " + path("runs/a") + " --out " + path("page.html")).code, 0);
  const Ran ran = run("report " + path("runs/a") + " --out -");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.output, contents_of(path("page.html")));
  EXPECT_EQ(run("report " + path("runs/a") + " --out - >/dev/full").code, 2);  // The message is lost there too.
}

TEST_F(ReportProgram, SaysHowToShowTheRunsOfAFolder) {
  expect_mistake("report " + path("runs"), "it has 1 run in it: starling report " + path("runs") + "/*");
}

TEST_F(ReportProgram, ShowsTheLandscapeOfARun) {
  const std::string name = R"("trajectories":[{"name":)";
  const Ran before = run("report " + path("runs/a") + " --out -");
  EXPECT_NE(before.output.find(R"("landscapes":[])"), std::string::npos);
  const Ran ran = run("landscape " + path("runs/a") + " --grid 3");
  ASSERT_EQ(ran.code, 0) << ran.output;
  const Ran after = run("report " + path("runs/a") + " --out -");
  EXPECT_NE(after.output.find(name), std::string::npos);
  // The page that comes with the landscape shows it once.
  const std::string page = contents_of(path("runs/a/landscape/report.html"));
  EXPECT_NE(page.find(name), std::string::npos);
  EXPECT_EQ(page.find(name), page.rfind(name));
}

TEST_F(ReportProgram, HelpSaysWhatTheTitleIs) {
  const Ran ran = run("report --help");
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.output.find("and 8 more"), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace starling::cli
