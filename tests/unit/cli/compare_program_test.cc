// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// `starling compare` as its users meet it: tables, flags, comparisons that are interrupted or killed, mistakes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace starling::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* kGrid = R"(
[model]
name = "dense 8, relu, dense 3"
[data]
name = "blobs:classes=3,samples=600"
[train]
epochs = 2
batch = 16
[fabric]
name = "sim"
[compare]
title = "Two methods"
seeds = 2
[[axis]]
name = "method"
[[axis.choice]]
label = "sync"
strategy.name = "sync"
[[axis.choice]]
label = "async, one 30 ms"
strategy.name = "async"
delay = ["one:30ms"]
[grid]
strategy.workers = [2]
)";

struct Ran {
  int code = -1;  // Of a signal, 128 and its number.
  std::string output;
  std::string errors;
};

std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CompareProgram : public testing::Test {
 protected:
  CompareProgram() : folder_(testing::TempDir() + "starling_compare_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write("grid.toml", kGrid);
  }
  ~CompareProgram() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }

  // Starts the program with the folder of the test as the current one.
  pid_t start(const std::string& arguments) const {
    const std::string command = "cd " + folder_ + " && exec " + STARLING_PROGRAM + " compare " + arguments + " >out 2>err";
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    return child;
  }

  Ran wait_for(pid_t child) const {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return {.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
            .output = contents_of(path("out")),
            .errors = contents_of(path("err"))};
  }

  Ran run(const std::string& arguments) const { return wait_for(start(arguments)); }

  void expect_mistake(const std::string& arguments, const std::string& part) const {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 2) << arguments << "\n" << ran.errors;
    EXPECT_NE(ran.errors.find(part), std::string::npos) << arguments << "\n" << ran.errors;
    EXPECT_FALSE(fs::exists(path("runs"))) << arguments;
  }

  // Waits until a file is there.
  bool wait_for_file(const std::string& name) const {
    for (int i = 0; i < 3000; ++i) {
      if (fs::exists(path(name))) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  std::string folder_;
};

TEST_F(CompareProgram, PrintsATableAndWritesTheFiles) {
  const Ran ran = run("grid.toml");
  ASSERT_EQ(ran.code, 0) << ran.errors;
  EXPECT_EQ(ran.output.rfind("Two methods\n\ntest accuracy (%)\nmethod \\ workers", 0), 0U) << ran.output;
  EXPECT_NE(ran.output.find("\nasync, one 30 ms  "), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find(" ± "), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("more in runs/grid"), std::string::npos) << ran.output;
  EXPECT_NE(ran.errors.find("2 cells, 4 runs, into runs/grid\n"), std::string::npos) << ran.errors;
  EXPECT_NE(ran.errors.find("[4/4] "), std::string::npos) << ran.errors;
  EXPECT_EQ(ran.errors.find('\r'), std::string::npos);  // Not on a terminal.
  const nlohmann::json json = nlohmann::json::parse(contents_of(path("runs/grid/comparison.json")));
  EXPECT_EQ(json["title"], "Two methods");
  EXPECT_EQ(json["command"], "starling compare grid.toml");
  EXPECT_EQ(json["cells"][1]["labels"], nlohmann::json({"async, one 30 ms", "2"}));
  // The same as training alone.
  const std::string run_path = json["cells"][1]["runs"][1]["path"].get<std::string>();
  const nlohmann::json result = nlohmann::json::parse(contents_of(path("runs/grid/" + run_path + "/result.json")));
  EXPECT_EQ(json["cells"][1]["runs"][1]["weights_sha256"], result["weights_sha256"]);
  EXPECT_EQ(json["cells"][1]["runs"][1]["test_accuracy"], result["test_accuracy"]);
  EXPECT_EQ(contents_of(path("runs/grid/comparison.toml")), kGrid);
}

TEST_F(CompareProgram, CalledAgainItShowsTheSameAndRunsNothing) {
  const Ran first = run("grid.toml");
  const std::string json = contents_of(path("runs/grid/comparison.json"));
  const Ran second = run("grid.toml");
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(second.output, first.output);
  EXPECT_NE(second.errors.find("4 of them have ended before"), std::string::npos) << second.errors;
  EXPECT_EQ(second.errors.find("[1/4]"), std::string::npos) << second.errors;
  EXPECT_EQ(contents_of(path("runs/grid/comparison.json")), json);
  EXPECT_EQ(run("grid.toml --out elsewhere --jobs 1").code, 0);
  EXPECT_EQ(contents_of(path("elsewhere/comparison.json")), json);
  EXPECT_EQ(contents_of(path("elsewhere/comparison.csv")), contents_of(path("runs/grid/comparison.csv")));
}

TEST_F(CompareProgram, FlagsAloneMakeAGrid) {
  const std::string flags =
      "--strategies sync,easgd --workers 2,3 --seeds 4,2 --grid optimizer.lr=0.1,0.01 --set easgd.tau=2 --fabric sim --epochs 1 --batch 8 "
      "--model softmax --data blobs:classes=3,samples=90 --speed 1:0.5 --schedule multi-step:1,2:0.5 --batch-warmup 1:2 --title 'A title' "
      "--values test_accuracy,steps --delay all:1ms";
  const Ran ran = run(flags + " --markdown");
  ASSERT_EQ(ran.code, 0) << ran.errors;
  EXPECT_NE(ran.output.find("| strategy \\\\ workers / lr | 2 / 0.1 |"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("**steps**"), std::string::npos) << ran.output;
  const nlohmann::json json = nlohmann::json::parse(contents_of(path("runs/compare-1/comparison.json")));
  EXPECT_EQ(json["seeds"], nlohmann::json({4, 2}));
  EXPECT_EQ(json["cells"].size(), 8U);
  const std::string config = contents_of(path("runs/compare-1/cells/easgd_3_0.01/seed-4/config.toml"));
  for (const char* line : {"lr = 0.01", "tau = \"2\"", "workers = 3", "epochs = 1", "factor = 0.5", "milestones = [1, 2]", "gamma = 0.5",
                           "batch_warmup_from = 2", "time = \"0.001s\""}) {
    EXPECT_NE(config.find(line), std::string::npos) << line << "\n" << config;
  }
  // What was written repeats it, and so does the command.
  EXPECT_EQ(run("runs/compare-1/comparison.toml --out again").code, 0);
  nlohmann::json again = nlohmann::json::parse(contents_of(path("again/comparison.json")));
  again["command"] = json["command"];
  EXPECT_EQ(again, json);
  const std::string command = json["command"].get<std::string>().substr(std::string("starling compare ").size());
  EXPECT_EQ(run(command).code, 0);
  EXPECT_EQ(nlohmann::json::parse(contents_of(path("runs/compare-2/comparison.json"))), json);
}

TEST_F(CompareProgram, FlagsAloneGoOnWithWhatIsUnfinished) {
  const std::string flags =
      "--strategies sync,async --workers 2 --fabric sim --epochs 10 --batch 16 --model softmax --data blobs:classes=3,samples=900 --seeds "
      "2 "
      "--jobs 1";
  const pid_t child = start(flags);
  ASSERT_TRUE(wait_for_file("runs/compare-1/cells/sync/seed-1/result.json"));
  ::kill(child, SIGINT);
  const Ran interrupted = wait_for(child);
  ASSERT_EQ(interrupted.code, 130) << interrupted.errors;
  EXPECT_EQ(run("--workers 2,3 --fabric sim --epochs 1 --model softmax --data blobs:classes=3,samples=90").code, 0);  // Another one.
  EXPECT_TRUE(fs::exists(path("runs/compare-2")));
  const Ran again = run(flags);
  EXPECT_EQ(again.code, 0) << again.errors;
  EXPECT_EQ(again.errors.rfind("going on in runs/compare-1\n", 0), 0U) << again.errors;
  EXPECT_FALSE(fs::exists(path("runs/compare-3")));
  // What is complete is not touched any more.
  const Ran anew = run(flags);
  EXPECT_EQ(anew.code, 0) << anew.errors;
  EXPECT_TRUE(contents_of(path("runs/compare-3/comparison.json")) == contents_of(path("runs/compare-1/comparison.json")));
}

TEST_F(CompareProgram, OneWorkerEverywhereIsWorthANote) {
  const std::string flags = " --fabric sim --epochs 1 --model softmax --data blobs:classes=3,samples=90";
  const Ran ran = run("--strategies sync,async" + flags);
  EXPECT_EQ(ran.code, 0) << ran.errors;
  EXPECT_NE(ran.errors.find("note: every cell has one worker, with which async, sync have nobody"), std::string::npos) << ran.errors;
  EXPECT_EQ(run("--strategies sync,async --workers 1,2" + flags).errors.find("every cell has one worker"), std::string::npos);
  EXPECT_EQ(run("--grid optimizer.lr=0.1,0.2" + flags).errors.find("every cell has one worker"), std::string::npos);
}

TEST_F(CompareProgram, WideTablesGetMoreRows) {
  const Ran ran =
      run("--strategies sync,async --workers 2 --fabric sim --epochs 1 --model softmax --data blobs:classes=3,samples=90 "
          "--grid optimizer.lr=0.10001,0.20001,0.30001,0.40001,0.50001 --grid train.batch=8,9,10,11");
  ASSERT_EQ(ran.code, 0) << ran.errors;
  EXPECT_NE(ran.output.find("strategy / lr \\ batch"), std::string::npos) << ran.output;
}

TEST_F(CompareProgram, TwoFilesOfOneNameDoNotShareAFolder) {
  ASSERT_EQ(run("grid.toml").code, 0);
  write("grid.toml", "[model]\nname = \"softmax\"\n[data]\nname = \"blobs\"\n[fabric]\nname = \"sim\"\n[grid]\ntrain.batch = [8]\n");
  const Ran refused = run("grid.toml");
  EXPECT_EQ(refused.code, 2) << refused.errors;
  EXPECT_NE(refused.errors.find("'runs/grid' holds another comparison"), std::string::npos) << refused.errors;
  const Ran fresh = run("grid.toml --fresh --epochs 1");
  EXPECT_EQ(fresh.code, 0) << fresh.errors;
  EXPECT_NE(fresh.errors.find("note: 2 cells in runs/grid/cells are not of this comparison"), std::string::npos) << fresh.errors;
}

TEST_F(CompareProgram, ADryRunListsCellsAndWritesNothing) {
  const Ran ran = run("grid.toml --epochs 5 --dry-run");
  EXPECT_EQ(ran.code, 0) << ran.errors;
  EXPECT_EQ(ran.output.rfind("2 cells with 2 seeds each: 4 runs, about 12000 samples\n", 0), 0U) << ran.output;
  EXPECT_NE(ran.output.find("strategy.name = \"async\""), std::string::npos) << ran.output;
  EXPECT_FALSE(fs::exists(path("runs")));
}

TEST_F(CompareProgram, MistakesAreFoundBeforeAnythingRuns) {
  expect_mistake("missing.toml", "cannot read the comparison 'missing.toml'");
  expect_mistake("", "there is nothing to compare");
  expect_mistake("--strategies sync,asinc --fabric sim", "--strategies: there is no strategy 'asinc'");
  expect_mistake("--strategies sync,asinc --fabric sim", "Did you mean 'async'?");
  expect_mistake("--strategies sync,,async", "--strategies is 'sync,,async'");
  expect_mistake("--workers 2,many", "--workers: strategy.workers is a string");
  expect_mistake("--grid optimizer.lrr=1,2", "Did you mean 'lr'?");
  expect_mistake("--grid optimizer.lr", "--grid is 'optimizer.lr', but it is given as KEY=V1,V2");
  expect_mistake("--grid optimizer.lr=[]", "is an empty list");
  expect_mistake("--workers 2,3 --seeds x", "--seeds has 'x'");
  expect_mistake("--workers 2,3 --seeds 0", "there are no seeds");
  expect_mistake("--workers 2,3 --values accuracy", "there is no value 'accuracy'");
  expect_mistake("--workers 2,3 --set easgd.rho=1", "these are options of strategy 'easgd', but no cell has it");
  expect_mistake("--workers 2,3 --set rho", "--set is 'rho'");
  expect_mistake("--workers 2,3 --strategy easgd --set easgd.roh=1 --data blobs", "--set: ");
  expect_mistake("--grid '#=3'", "--grid is '# = [3]', but it gives values to one key");
  expect_mistake("--workers 2,3 --seeds 18446744073709551615,3", "--seeds has '18446744073709551615', but seeds are whole numbers from 0");
  expect_mistake("--workers 2,3 --seed 9000000000000000001", "--seed: Value 9000000000000000001 not in range 0 to 9000000000000000000");
  expect_mistake("--workers 2,3 --seed 9000000000000000000 --seeds 2 --data blobs", "a seed is 9000000000000000001, but seeds are whole");
  expect_mistake("--grid model.name=lenett5 --data blobs", "--grid: model.name: there is no model 'lenett5'");
  expect_mistake("grid.toml --strategies async,hogwild",
                 "the axis 'strategy' sets strategy.name, but so does the axis 'method' (grid.toml:");
  expect_mistake("grid.toml --strategy sync", "--strategy gives strategy.name for all cells, but the axis 'method' says");
  expect_mistake("grid.toml --lr x", "--lr");
  expect_mistake("grid.toml --resume a", "--resume");
  write("bad.toml", std::string(kGrid) + "[compare2]\n");
  expect_mistake("bad.toml", "bad.toml:25: there is no key 'compare2'");
  write("worse.toml", "[grid\n");
  expect_mistake("worse.toml", "worse.toml:1: this is not TOML");
}

TEST_F(CompareProgram, NotConvergedIsAResultAndFailedIsNot) {
  const Ran nc = run("grid.toml --lr 1e30 --out nc");
  EXPECT_EQ(nc.code, 0) << nc.errors;
  EXPECT_NE(nc.output.find(" NC\n"), std::string::npos) << nc.output;
  EXPECT_NE(nc.errors.find("not converged: at step "), std::string::npos) << nc.errors;
  write("crash.toml", std::string(kGrid) + "[[sim.crash]]\nrank = 1\nat = \"10ms\"\n");
  const Ran failed = run("crash.toml");
  EXPECT_EQ(failed.code, 1) << failed.errors;
  EXPECT_NE(failed.output.find("failed\n"), std::string::npos) << failed.output;
  EXPECT_NE(failed.errors.find("starling: 2 of 4 runs failed:\n  cells/sync_2/seed-1: "), std::string::npos) << failed.errors;
}

TEST_F(CompareProgram, InterruptedItGoesOn) {
  ASSERT_EQ(run("grid.toml --epochs 12 --out whole").code, 0);
  const pid_t child = start("grid.toml --epochs 12 --jobs 1 --out 'a b'");
  ASSERT_TRUE(wait_for_file("a b/cells/sync_2/seed-1/result.json"));
  ::kill(child, SIGINT);
  const Ran ran = wait_for(child);
  EXPECT_EQ(ran.code, 130) << ran.errors;
  EXPECT_NE(ran.errors.find("To go on:\n  starling compare grid.toml --epochs 12 --out 'a b'\n"), std::string::npos) << ran.errors;
  const nlohmann::json json = nlohmann::json::parse(contents_of(path("a b/comparison.json")));
  EXPECT_GE(json["cells"][0]["runs"].size() + json["cells"][1]["runs"].size(), 1U);
  const Ran again = run("grid.toml --epochs 12 --jobs 2 --out 'a b'");
  EXPECT_EQ(again.code, 0) << again.errors;
  EXPECT_EQ(contents_of(path("a b/comparison.json")), contents_of(path("whole/comparison.json")));
  EXPECT_EQ(contents_of(path("a b/comparison.csv")), contents_of(path("whole/comparison.csv")));
}

TEST_F(CompareProgram, KilledItLeavesWhatThereWas) {
  const pid_t child = start("grid.toml --epochs 30 --jobs 1");
  ASSERT_TRUE(wait_for_file("runs/grid/comparison.csv"));
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child).code, 128 + SIGKILL);
  const nlohmann::json json = nlohmann::json::parse(contents_of(path("runs/grid/comparison.json")));
  const std::size_t ended = json["cells"][0]["runs"].size() + json["cells"][1]["runs"].size();
  EXPECT_GE(ended, 1U);
  EXPECT_LT(ended, 4U);
}

// At any moment: also while a folder is made, a checkpoint written, the result replaced.
TEST_F(CompareProgram, KilledItGoesOn) {
  ASSERT_EQ(run("grid.toml --epochs 6 --out whole").code, 0);
  for (int kills = 0; kills < 8; ++kills) {
    const pid_t child = start("grid.toml --epochs 6 --out a");
    std::this_thread::sleep_for(20ms + kills * 40ms);
    ::kill(child, SIGKILL);
    static_cast<void>(wait_for(child));
  }
  const Ran ran = run("grid.toml --epochs 6 --out a");
  EXPECT_EQ(ran.code, 0) << ran.errors;
  EXPECT_EQ(contents_of(path("a/comparison.json")), contents_of(path("whole/comparison.json")));
  EXPECT_EQ(contents_of(path("a/comparison.csv")), contents_of(path("whole/comparison.csv")));
}

}  // namespace
}  // namespace starling::cli
