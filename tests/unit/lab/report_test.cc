// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the report reads and what it refuses. How the page looks and behaves is tested in a browser, in tests/report.
#include "starling/lab/report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "starling/base/error.h"
#include "starling/run/run_config.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Report : public testing::Test {
 protected:
  Report() {
    fs::create_directories(root_);
    make_run("run");
  }
  ~Report() override { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return root_ + "/" + name; }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }
  void append(const std::string& name, const std::string& text) const { std::ofstream(path(name), std::ios::app) << text; }

  void make_run(const std::string& name) const {
    run::RunConfig config;
    config.data = "blobs:classes=3";
    config.fabric.name = "sim";
    write(name + "/config.toml", run::to_toml(config));
  }

  static std::string step(int number, const std::string& more = "") {
    return R"({"kind":"step","step":)" + std::to_string(number) + R"(,"epoch":0.5,"samples":64,"seconds":1.5,"loss":0.25)" + more + "}\n";
  }

  std::string error_of(const std::vector<std::string>& paths) const {
    try {
      static_cast<void>(make_report({.paths = paths}));
    } catch (const UserError& error) {
      return error.what();
    }
    return "none";
  }

  // The JSON object in a page.
  static json data_of(const std::string& page) {
    const std::string begin = R"(<script type="application/json" id="data">)";
    const std::size_t from = page.find(begin) + begin.size();
    return json::parse(page.substr(from, page.find("</script>", from) - from));
  }

  std::string root_ = testing::TempDir() + "starling_report_" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Report, ReadsConfigurationMetricsAndResult) {
  write("run/metrics.jsonl", step(1) + step(2, R"(,"weight_norm":3.5,"gradient_norm":null)") +
                                 R"({"kind":"epoch","step":2,"samples":128,"test_accuracy":0.5})" + "\n");
  write("run/result.json", R"({"ending":"finished","test_accuracy":0.123456789012345678})");
  const json data = data_of(make_report({.paths = {path("run/")}, .title = "A title"}));
  EXPECT_EQ(data["title"], "A title");
  ASSERT_EQ(data["runs"].size(), 1U);
  const json& run = data["runs"][0];
  EXPECT_EQ(run["path"], fs::canonical(path("run")).string());
  EXPECT_EQ(run["virtual_time"], true);
  EXPECT_EQ(run["steps"]["step"], json::parse("[1, 2]"));
  EXPECT_EQ(run["steps"]["weight_norm"], json::parse("[null, 3.5]"));
  EXPECT_FALSE(run["steps"].contains("gradient_norm"));
  EXPECT_EQ(run["epochs"]["test_accuracy"], json::parse("[0.5]"));
  EXPECT_EQ(run["result"]["test_accuracy"], 0.123456789012345678);
  EXPECT_NE(std::find(run["config"].begin(), run["config"].end(), json::parse(R"(["data.name", "blobs:classes=3"])")), run["config"].end());
}

TEST_F(Report, ARunThatGoesOnHasNoResultAndALineThatIsNotWrittenYet) {
  write("run/metrics.jsonl", step(1) + R"({"kind":"step","st)");
  const json run = data_of(make_report({.paths = {path("run")}}))["runs"][0];
  EXPECT_EQ(run["steps"]["step"], json::parse("[1]"));
  EXPECT_TRUE(run["result"].is_null());
}

TEST_F(Report, NothingInTheDataCanEndTheScript) {
  const std::string name = "a</script><script>alert(1)<!--";
  make_run("b");
  const std::string page = make_report({.paths = {path("run"), path("b")}, .title = name});
  EXPECT_EQ(page.find("</script><script>alert"), std::string::npos);
  EXPECT_EQ(data_of(page)["title"], name);
  EXPECT_NE(page.find("<title>a&lt;/script&gt;"), std::string::npos);
  EXPECT_NE(page.find("connect-src 'none'"), std::string::npos);
}

TEST_F(Report, TheSameRunTwiceIsOneRun) {
  const json data =
      data_of(make_report({.paths = {path("run"), path("run/"), path("../") + fs::path(root_).filename().string() + "/run"}}));
  EXPECT_EQ(data["runs"].size(), 1U);
}

TEST_F(Report, WhatIsNoRunIsRefused) {
  EXPECT_EQ(error_of({}), "a report needs at least one run, comparison or landscape");
  EXPECT_EQ(error_of({path("missing")}), "there is no folder '" + path("missing") + "' to report on");
  fs::create_directories(path("empty"));
  EXPECT_EQ(error_of({path("empty")}),
            "'" + path("empty") +
                "' is neither a run (it has no config.toml), nor a comparison (no comparison.json), nor a landscape "
                "(no landscape.json)");
}

TEST_F(Report, AFolderWithRunsInItSaysHowToShowThem) {
  const std::string begin = "'" + path("many") + "' is neither a run nor a comparison nor a landscape, but it has ";
  make_run("many/a");
  EXPECT_EQ(error_of({path("many/")}), begin + "1 run in it: starling report " + path("many") + "/*");
  make_run("many/b");
  EXPECT_EQ(error_of({path("many/")}), begin + "2 runs in it: starling report " + path("many") + "/*");
  write("many/c/landscape.json", "{}");
  EXPECT_EQ(error_of({path("many/")}), begin + "3 folders that can be shown in it: starling report " + path("many") + "/*");
  write("many/notes.txt", "");  // Which cannot be shown, so that a star would be refused.
  EXPECT_EQ(error_of({path("many")}), begin + "3 folders that can be shown in it, the first is '" + path("many") + "/a'");
}

TEST_F(Report, PathsAreCanonicalAndNamesAreAsGiven) {
  fs::create_directory_symlink(path("run"), path("link"));
  const json runs = data_of(make_report({.paths = {path("./link")}}))["runs"];
  EXPECT_EQ(runs[0]["name"], path("./link"));
  EXPECT_EQ(runs[0]["path"], fs::canonical(path("run")).string());
  EXPECT_EQ(runs[0]["command"], "starling train --config " + path("./link") + "/config.toml");
}

TEST_F(Report, TellsWhichKeysOfTheConfigurationAreNotTheDefaults) {
  const json run = data_of(make_report({.paths = {path("run")}}))["runs"][0];
  EXPECT_EQ(run["changed"], json::parse(R"(["data.name", "fabric.name"])")) << run["changed"];
}

TEST_F(Report, ALandscapeInTheFolderOfARunIsShown) {
  const std::string landscape = R"({"title":"L","x":[1,2],"y":[1,2],"grid":[[1,2],[3,4]],"trajectories":[{"name":")";
  write("run/landscape/landscape.json", landscape + path("run") + R"(","points":[]}]})");
  json data = data_of(make_report({.paths = {path("run"), path("run/landscape")}}));
  EXPECT_EQ(data["landscapes"].size(), 1U);
  data = data_of(make_report({.paths = {path("run")}}));
  ASSERT_EQ(data["landscapes"].size(), 1U);
  EXPECT_EQ(data["title"], path("run"));
  EXPECT_EQ(data["landscapes"][0]["trajectories"][0]["path"], data["runs"][0]["path"]);
  // A landscape that is given itself is the one to show.
  write("land/landscape.json", landscape + R"(nowhere","points":[]}]})");
  data = data_of(make_report({.paths = {path("run"), path("land")}}));
  ASSERT_EQ(data["landscapes"].size(), 1U);
  EXPECT_EQ(data["landscapes"][0]["path"], fs::canonical(path("land")).string());
  EXPECT_FALSE(data["landscapes"][0]["trajectories"][0].contains("path"));
}

TEST_F(Report, ARunThatALandscapeNamesIsFoundFromAnywhere) {
  // Made where the folder "runs" lies, and shown elsewhere.
  make_run("runs/a");
  write("runs/a/landscape/landscape.json", R"({"x":[1,2],"y":[1,2],"grid":[[1,2],[3,4]],"trajectories":[{"name":"runs/a","points":[]}]})");
  const json data = data_of(make_report({.paths = {path("runs/a")}}));
  EXPECT_EQ(data["landscapes"][0]["trajectories"][0]["path"], fs::canonical(path("runs/a")).string());
}

TEST_F(Report, OnlyAPageOfOursIsReplaced) {
  const std::string page = make_report({.paths = {path("run")}});
  write_report(path("page.html"), page);
  write_report(path("page.html"), page);
  EXPECT_EQ(data_of(page)["title"], path("run"));
  write("empty.html", "");
  write_report(path("empty.html"), page);
  EXPECT_EQ(fs::file_size(path("empty.html")), page.size());
  for (const std::string& text : {step(1), std::string("x"), std::string("<!DOCTYPE html>\n<html></html>\n")}) {
    write("run/metrics.jsonl", text);
    EXPECT_THROW(write_report(path("run/metrics.jsonl"), page), UserError) << text;
    EXPECT_EQ(fs::file_size(path("run/metrics.jsonl")), text.size());
  }
  EXPECT_THROW(write_report(path("run"), page), UserError);
  EXPECT_THROW(write_report("/dev/null", page), UserError);
}

TEST_F(Report, ADamagedLineIsNamed) {
  for (const std::string line : {"no json\n", "[1]\n", "{\"kind\":\"other\"}\n", "{\"kind\":\"step\",\"loss\":\"much\"}\n", "\n"}) {
    write("run/metrics.jsonl", step(1) + step(2) + line + step(4));
    EXPECT_NE(error_of({path("run")}).find("run/metrics.jsonl:3: "), std::string::npos) << line << error_of({path("run")});
  }
}

TEST_F(Report, ADamagedResultIsNamed) {
  for (const std::string text :
       {"{", "[]", R"({"histograms":{"version":[[1,2,3]]}})", R"({"histograms":{"version":7}})", R"({"classes":{}})",
        R"({"classes":{"confusion":[[1,2],[3]]}})", R"({"classes":{"confusion":[[1]],"names":[5]}})",
        R"({"workers_time":[{"compute_seconds":1}]})", R"({"workers_time":{}})"}) {
    write("run/result.json", text);
    EXPECT_NE(error_of({path("run")}).find("run/result.json'"), std::string::npos) << text << error_of({path("run")});
  }
}

TEST_F(Report, ADamagedConfigurationIsNamedWithItsLine) {
  write("run/config.toml", "[train]\nepochs = \"many\"\n");
  EXPECT_NE(error_of({path("run")}).find("run/config.toml:2"), std::string::npos) << error_of({path("run")});
}

TEST_F(Report, AComparisonBringsItsRuns) {
  make_run("grid/cells/a");
  write("grid/comparison.json", R"({"title":"Grid","axes":[{"name":"method","labels":["x"]}],"cells":[{"labels":["x"],"summary":{},
        "runs":[{"seed":1,"path":"cells/a"},{"seed":2,"path":"cells/gone"}]}]})");
  const json data = data_of(make_report({.paths = {path("grid")}}));
  EXPECT_EQ(data["title"], "Grid");
  ASSERT_EQ(data["runs"].size(), 1U);
  EXPECT_EQ(data["runs"][0]["name"], "x, seed 1");
  EXPECT_EQ(data["comparisons"][0]["cells"][0]["runs"][1]["name"], "x, seed 2");
}

TEST_F(Report, NamesOfComparedRunsNameTheAxesOfNumbers) {
  make_run("grid/cells/a");
  write("grid/comparison.json",
        R"({"title":"Grid","axes":[{"name":"method"},{"name":"workers"},{"name":"lr"},{"name":"delay"}],
        "cells":[{"labels":["sync","2","2e-2","30ms"],"summary":{},"runs":[{"seed":1,"path":"cells/a"}]}]})");
  const json data = data_of(make_report({.paths = {path("grid")}}));
  EXPECT_EQ(data["runs"][0]["name"], "sync, workers 2, lr 2e-2, 30ms, seed 1");
  EXPECT_EQ(data["comparisons"][0]["cells"][0]["runs"][0]["path"], data["runs"][0]["path"]);
  EXPECT_EQ(data["comparisons"][0]["path"], fs::canonical(path("grid")).string());
}

TEST_F(Report, SeveralComparisonsPrefixTheNamesOfTheirRuns) {
  const auto make_grid = [this](const std::string& name, const std::string& title) {
    make_run(name + "/cells/a");
    write(name + "/comparison.json", R"({"title":")" + title + R"(","axes":[{"name":"method"}],"cells":[{"labels":["x"],"summary":{},
          "runs":[{"seed":1,"path":"cells/a"}]}]})");
  };
  make_grid("one", "Same");
  make_grid("two", "Same");
  make_grid("three", "Other");
  const json data = data_of(make_report({.paths = {path("one"), path("two"), path("three"), path("./one")}}));
  ASSERT_EQ(data["runs"].size(), 3U);
  EXPECT_EQ(data["runs"][0]["name"], path("one") + ": x, seed 1");
  EXPECT_EQ(data["runs"][1]["name"], path("two") + ": x, seed 1");
  EXPECT_EQ(data["runs"][2]["name"], "Other: x, seed 1");
  EXPECT_EQ(data["comparisons"][2]["cells"][0]["runs"][0]["name"], "Other: x, seed 1");
  EXPECT_EQ(data_of(make_report({.paths = {path("one"), path("./one"), path("run")}}))["runs"][0]["name"], "x, seed 1");
}

TEST_F(Report, WithoutATitleThePathIsOne) {
  write("grid/comparison.json", R"({"title":"","axes":[],"cells":[]})");
  EXPECT_EQ(data_of(make_report({.paths = {path("grid")}}))["title"], path("grid"));
  EXPECT_EQ(data_of(make_report({.paths = {path("run")}}))["title"], path("run"));
  EXPECT_EQ(data_of(make_report({.paths = {path("grid"), path("run")}}))["title"], path("grid") + " and 1 more");
}

TEST_F(Report, DamagedComparisonsAndLandscapesAreNamed) {
  for (const std::string text : {"", "[]", "{}", R"({"axes":[],"cells":{}})", R"({"axes":[{}],"cells":[]})",
                                 R"({"axes":[{"name":"a"}],"cells":[{"labels":[],"runs":[],"summary":{}}]})",
                                 R"({"axes":[],"cells":[{"labels":[],"runs":[{}],"summary":{}}]})",
                                 R"({"axes":[],"cells":[{"labels":[],"runs":[],"summary":{"a":{"mean":"x"}}}]})"}) {
    write("grid/comparison.json", text);
    EXPECT_NE(error_of({path("grid")}).find("grid/comparison.json'"), std::string::npos) << text << error_of({path("grid")});
  }
  for (const std::string text : {"", "[]", R"({"x":[1],"y":[1,2],"grid":[[1],[1]]})", R"({"x":[1,2],"y":[1,2],"grid":[[1,2]]})",
                                 R"({"x":[1,2],"y":[1,2],"grid":[[1,2],[3]]})", R"({"x":[1,2],"y":[1,2],"grid":[[1,2],[3,"a"]]})",
                                 R"({"x":[1,2],"y":[1,2],"grid":[[1,2],[3,4]],"trajectories":[{"points":[{"x":1}]}]})"}) {
    write("land/landscape.json", text);
    EXPECT_NE(error_of({path("land")}).find("land/landscape.json'"), std::string::npos) << text << error_of({path("land")});
  }
  write("land/landscape.json", R"({"x":[1,2],"y":[1,2],"grid":[[1,2],[3,null]]})");
  EXPECT_EQ(data_of(make_report({.paths = {path("land")}}))["landscapes"].size(), 1U);
}

TEST_F(Report, AFollowerReadsWhatIsNew) {
  RunFollower follower(path("run"), "run");
  EXPECT_TRUE(follower.read());
  EXPECT_FALSE(follower.read());
  append("run/metrics.jsonl", step(1));
  EXPECT_TRUE(follower.read());
  EXPECT_FALSE(follower.read());
  append("run/metrics.jsonl", R"({"kind":"step","step":2)");
  static_cast<void>(follower.read());
  EXPECT_EQ(json::parse(follower.to_json())["steps"]["step"], json::parse("[1]"));
  append("run/metrics.jsonl", "}\n" + step(3));
  EXPECT_TRUE(follower.read());
  EXPECT_EQ(json::parse(follower.to_json())["steps"]["step"], json::parse("[1, 2, 3]"));
  write("run/result.json", R"({"ending":"interrupted"})");
  EXPECT_TRUE(follower.read());
  EXPECT_EQ(json::parse(follower.to_json())["result"]["ending"], "interrupted");
  // The run goes on: its result is removed, and some steps will be done again.
  fs::remove(path("run/result.json"));
  write("run/metrics.jsonl", step(1));
  EXPECT_TRUE(follower.read());
  EXPECT_EQ(json::parse(follower.to_json())["steps"]["step"], json::parse("[1]"));
  EXPECT_TRUE(json::parse(follower.to_json())["result"].is_null());
}

TEST_F(Report, ManyRunsHaveFewerPointsEach) {
  std::string metrics;
  for (int i = 1; i <= 3000; ++i) metrics += step(i);
  std::vector<std::string> paths;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "many/" + std::to_string(i);
    make_run(name);
    write(name + "/metrics.jsonl", metrics);
    paths.push_back(path(name));
  }
  const json data = data_of(make_report({.paths = paths}));
  ASSERT_EQ(data["runs"].size(), 40U);
  for (const json& run : data["runs"]) EXPECT_LE(run["steps"]["step"].size(), 501U);
  EXPECT_LE(data_of(make_report({.paths = {paths[0]}}))["runs"][0]["steps"]["step"].size(), kLinePoints + 1);
}

TEST_F(Report, ALivePageTellsItsTroubleAndGoesOn) {
  LiveReport report(path("run"));
  const std::string page = report.page();
  EXPECT_NE(page.find("connect-src 'self'"), std::string::npos);
  EXPECT_EQ(data_of(page)["live"], json::parse(R"({"ended":false,"problem":""})"));
  EXPECT_EQ(data_of(report.page(true))["live"]["ended"], true);
  append("run/metrics.jsonl", step(1) + "damaged\n");
  EXPECT_NE(json::parse(report.data(false))["live"]["problem"].get<std::string>().find("metrics.jsonl:2"), std::string::npos);
  append("run/metrics.jsonl", step(3));
  const json later = json::parse(report.data(true));
  EXPECT_EQ(later["live"], json::parse(R"({"ended":true,"problem":""})"));
  EXPECT_EQ(later["runs"][0]["steps"]["step"], json::parse("[1, 3]"));
}

}  // namespace
}  // namespace starling::lab
