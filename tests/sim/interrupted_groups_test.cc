// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Groups that are in step inside but not with each other: a run that is interrupted and resumed is the run that never was, whatever the
// moment.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "unit/run/small_training.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;

TEST(InterruptedGroups, GoOnBitForBit) {
  const std::string path = testing::TempDir() + "starling_groups_test_" + std::to_string(::getpid());
  for (const char* group : {"1", "2", "4"}) {
    RunConfig config = uneven(small_config("ea-wild", 4, "sim"));
    config.options["group"] = group;
    const TrainResult whole = train_small(config).result;
    for (const int steps : {1, 5, 9, 17}) {
      SCOPED_TRACE(testing::Message() << "groups of " << group << ", interrupted after " << steps << " steps");
      fs::remove_all(path);
      {
        RunDirectory directory = RunDirectory::create(path, config);
        int step = 0;
        EXPECT_EQ(train_small(config, {.directory = &directory, .stop = [&] { return ++step == steps; }}).result.ending,
                  Ending::interrupted);
      }
      RunDirectory directory = RunDirectory::open(path);
      const Checkpoint checkpoint = CheckpointStore(directory.checkpoints_path()).read("latest");
      const TrainResult resumed = train_small(config, {.directory = &directory}, &checkpoint).result;
      EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
      EXPECT_EQ(resumed.balance.produced, whole.balance.produced);
      EXPECT_TRUE(resumed.balance.balanced);
    }
  }
  fs::remove_all(path);
}

}  // namespace
}  // namespace starling::run
