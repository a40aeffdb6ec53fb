// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "starling/base/error.h"
#include "starling/base/file.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : folder_(testing::TempDir() + "starling_checkpoint_test_" + std::to_string(::getpid())), store_(folder_) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    layout_.add("weight", {3, 2});
    layout_.add("mean", {2}, params::SliceKind::buffer);
    weights_.resize(layout_.size());
    std::iota(weights_.begin(), weights_.end(), 1.5F);
    velocity_.assign(layout_.parameter_count(), -0.25F);
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  static RunState state_at(std::uint64_t step) {
    RunState state;
    state.position = {.epoch = 2, .sample = 5, .number = step};
    state.steps = step;
    state.samples = 100;
    state.skipped = 1;
    state.seconds = 0.1 + 0.2;
    state.total_seconds = 4;
    state.train_loss = 0.7;
    state.test_accuracy = 0.9;
    state.metrics_bytes = 12345;
    state.stretches = 3;
    state.clock = Time(1'234'567'890'123);
    state.workers = {{.progress = {.epoch = 2, .sample = 5, .number = step},
                      .order = {.epoch = 1, .sample = 4, .number = 3},
                      .samples = 99,
                      .skipped = 1,
                      .skipped_in_a_row = 1,
                      .epoch_loss_sum = 1.0 / 3,
                      .epoch_samples = 7},
                     {}};
    state.numbers = {{"rank0/optimizer/steps", step}};
    state.ledger = "{\"a\": 1}";
    return state;
  }

  std::string write(std::uint64_t step, bool interrupted = false, bool epoch_end = false) {
    RunState state = state_at(step);
    if (epoch_end) state.workers[0].progress.sample = 0, state.workers[1].progress.epoch = 2;
    return store_.write({.state = state,
                         .config = "[run]\nseed = 1\n",
                         .model = "a model",
                         .data = "some data",
                         .layout = layout_,
                         .weights = weights_,
                         .vectors = {{.name = "rank0/optimizer/momentum", .values = velocity_}},
                         .interrupted = interrupted});
  }

  std::string refusal(const std::string& name = "latest") const {
    try {
      (void)store_.read(name);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  }

  std::string path(const std::string& file) const { return folder_ + "/" + file; }

  std::string folder_;
  CheckpointStore store_;
  params::Layout layout_;
  std::vector<float> weights_;
  std::vector<float> velocity_;
};

TEST_F(CheckpointTest, WhatWasWrittenIsRead) {
  EXPECT_EQ(store_.latest(), std::nullopt);
  EXPECT_EQ(write(1234), "step-00001234");
  for (const char* name : {"latest", "step-00001234", "1234"}) {
    const Checkpoint read = store_.read(name);
    EXPECT_EQ(read.name, "step-00001234");
    EXPECT_EQ(read.state, state_at(1234));
    EXPECT_EQ(read.config, "[run]\nseed = 1\n");
    EXPECT_EQ(read.model, "a model");
    EXPECT_EQ(read.weights.layout, layout_);
    EXPECT_EQ(read.weights.values, weights_);
    EXPECT_EQ(read.vectors.layout.slices()[0].name, "rank0/optimizer/momentum");
    EXPECT_EQ(read.vectors.values, velocity_);
  }
}

TEST_F(CheckpointTest, TheSumsAreThoseOfSha256sum) {
  (void)write(1);
  EXPECT_EQ(std::system(("cd " + path("step-00000001") + " && sha256sum --check --quiet SHA256SUMS").c_str()), 0);
}

TEST_F(CheckpointTest, TheNewestAtTheEndOfAnEpochIsKept) {
  EXPECT_EQ(store_.latest_epoch_end(), std::nullopt);
  static_cast<void>(write(5, false, true));
  static_cast<void>(write(10, false, true));
  for (const std::uint64_t step : {12, 14, 17}) static_cast<void>(write(step));
  EXPECT_EQ(store_.names(), (std::vector<std::string>{"step-00000010", "step-00000014", "step-00000017"}));
  EXPECT_EQ(store_.latest_epoch_end(), "step-00000010");
  static_cast<void>(write(20, false, true));
  static_cast<void>(write(22));
  EXPECT_EQ(store_.names(), (std::vector<std::string>{"step-00000020", "step-00000022"}));
}

TEST_F(CheckpointTest, WritingShowsThatItGetsOn) {
  const RunState state = state_at(1);
  int steps = 0;
  static_cast<void>(store_.write(
      {.state = state, .config = "", .model = "", .data = "", .layout = layout_, .weights = weights_, .progress = [&] { ++steps; }}));
  EXPECT_GE(steps, 3);
  EXPECT_EQ(store_.read("latest").weights.values, weights_);
}

TEST_F(CheckpointTest, InterruptionsDoNotRemoveTheNewestOfAnUninterruptedRun) {
  EXPECT_EQ(store_.latest_planned(), std::nullopt);
  static_cast<void>(write(5));
  static_cast<void>(write(10));
  for (const std::uint64_t step : {12, 14, 17}) static_cast<void>(write(step, true));
  EXPECT_EQ(store_.names(), (std::vector<std::string>{"step-00000010", "step-00000014", "step-00000017"}));
  EXPECT_EQ(store_.latest(), "step-00000017");
  EXPECT_EQ(store_.latest_planned(), "step-00000010");
  store_.go_back_to("step-00000010");
  EXPECT_EQ(store_.names(), std::vector<std::string>{"step-00000010"});
  EXPECT_EQ(store_.latest(), "step-00000010");
  static_cast<void>(write(20));
  EXPECT_EQ(store_.latest_planned(), "step-00000020");
  // Half removed, or damaged, it is passed over.
  fs::remove(path("step-00000020/state.json"));
  EXPECT_EQ(store_.latest_planned(), "step-00000010");
}

TEST_F(CheckpointTest, TheNewestTwoAreKept) {
  for (const std::uint64_t step : {0, 10, 20, 30}) (void)write(step);
  EXPECT_EQ(store_.names(), (std::vector<std::string>{"step-00000020", "step-00000030"}));
  EXPECT_EQ(store_.latest(), "step-00000030");
}

TEST_F(CheckpointTest, ARunThatGoesOnFromAnOlderOneDropsTheLater) {
  for (const std::uint64_t step : {10, 20}) (void)write(step);
  store_.make_latest("step-00000010");
  (void)write(15);
  EXPECT_EQ(store_.names(), (std::vector<std::string>{"step-00000010", "step-00000015"}));
  EXPECT_EQ(store_.latest(), "step-00000015");
}

TEST_F(CheckpointTest, WhatAnUnfinishedWriteLeftIsIgnoredAndRemoved) {
  (void)write(10);
  fs::create_directories(path(".writing"));
  write_file(path(".writing/weights.safetensors"), {"half"}, "test");
  // Renamed, but not yet the latest, when the process died.
  fs::create_directories(path("step-00000020"));
  EXPECT_EQ(store_.read("latest").name, "step-00000010");
  (void)write(20);
  EXPECT_EQ(store_.read("latest").name, "step-00000020");
  EXPECT_FALSE(fs::exists(path(".writing")));
}

TEST_F(CheckpointTest, ATruncatedFileIsRefusedWithTheReason) {
  (void)write(10);
  (void)write(20);
  const std::string weights = path("step-00000020/weights.safetensors");
  const std::uint64_t size = fs::file_size(weights);
  fs::resize_file(weights, size - 3);
  const std::string message = refusal();
  EXPECT_NE(
      message.find("weights.safetensors is truncated: it has " + std::to_string(size - 3) + " bytes instead of " + std::to_string(size)),
      std::string::npos)
      << message;
  EXPECT_NE(message.find("step-00000010 is good: give --checkpoint step-00000010"), std::string::npos) << message;
}

// One byte after the other, in every file.
TEST_F(CheckpointTest, AnyAlteredByteIsNoticed) {
  (void)write(7);
  for (const char* file : {"weights.safetensors", "state.safetensors", "state.json", "SHA256SUMS"}) {
    const std::string place = path("step-00000007/") + file;
    const std::string good = read_file(place, "test");
    for (std::size_t i = 0; i < good.size(); i += 7) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      std::ofstream(place, std::ios::binary) << bad;
      const std::string message = refusal();
      EXPECT_NE(message.find("cannot be used"), std::string::npos) << file << " byte " << i << ": " << message;
    }
    write_file(place, {good}, "test");
  }
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(CheckpointTest, WhatCannotBeWrittenLeavesTheOneBefore) {
  (void)write(7);
  fs::create_directories(path("step-00000008"));
  fs::create_directories(path(".writing"));
  write_file(path(".writing/left_over"), {"from a run that was killed"}, "test");
  (void)write(8);
  EXPECT_FALSE(fs::exists(path("step-00000008/left_over")));
  EXPECT_EQ(refusal(), "accepted");
  fs::remove_all(path("latest"));
  fs::create_directories(path("latest/in_the_way"));
  EXPECT_THROW((void)write(9), UserError);
  EXPECT_FALSE(fs::exists(path(".writing")));
}

TEST_F(CheckpointTest, WhatIsMissingIsNamed) {
  EXPECT_NE(refusal().find("there is no checkpoint in"), std::string::npos);
  (void)write(7);
  EXPECT_NE(refusal("8").find("there is no checkpoint 'step-00000008'"), std::string::npos);
  EXPECT_NE(refusal("8").find("Did you mean 'step-00000007'?"), std::string::npos);
  fs::remove(path("step-00000007/state.safetensors"));
  EXPECT_NE(refusal().find("state.safetensors is missing"), std::string::npos) << refusal();
  (void)write(9);
  fs::remove(path("latest"));
  EXPECT_EQ(store_.read("latest").name, "step-00000009");  // As when the process died just before it wrote it.
  write_file(path("latest"), {"step-00000042"}, "test");
  EXPECT_NE(refusal().find("step-00000009 is good"), std::string::npos) << refusal();
  write_file(path("latest"), {"../../etc"}, "test");
  EXPECT_NE(refusal().find("should name a checkpoint, but says '../../etc'"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace starling::run
