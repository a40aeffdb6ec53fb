// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Training of parts of a model, as the trainer sees it: replicas are parts, the model, its tests and its checkpoints are whole.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/run/evaluation.h"
#include "starling/run/run_directory.h"
#include "unit/run/small_training.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kModes{"sync", "sync-once", "async"};

RunConfig ist_config(const std::string& mode, int workers, const std::string& fabric = "sim") {
  RunConfig config = small_config("ist", workers, fabric);
  config.options = {{"mode", mode}, {"period", "3"}};
  return config;
}

class Notes final : public TrainObserver {
 public:
  void noted(const std::string& message) override { notes.push_back(message); }
  std::vector<std::string> notes;
};

TEST(IstTraining, OneWorkerIsPlainTrainingBitForBit) {
  for (const char* model : {kSmallPerceptron, "dense 7 no bias, relu, dropout 0.2, dense 3", "softmax"}) {
    for (const char* optimiser : {"sgd", "momentum", "adam"}) {
      RunConfig plain = small_config("sequential", 1, "threads");
      plain.model = model;
      plain.optimiser.name = optimiser;
      const std::vector<float> expected = train_small(plain).model;
      for (const std::string& mode : kModes) {
        for (const char* masks : {"subnets", "uniform"}) {
          for (const char* fabric : {"threads", "sim"}) {
            SCOPED_TRACE(fmt::format("{} with {} of {} on {}, {}", mode, masks, model, fabric, optimiser));
            RunConfig config = ist_config(mode, 1, fabric);
            config.model = model;
            config.optimiser.name = optimiser;
            config.options["masks"] = masks;
            const Trained trained = train_small(config);
            EXPECT_EQ(trained.model, expected);
            EXPECT_TRUE(trained.result.balance.balanced);
          }
        }
      }
    }
  }
}

// E_k = I/P: the same merge is an average. Batches are equal, since local SGD counts a smaller one for less.
TEST(IstTraining, UniformMasksAreLocalSgdAndFedAvgBitForBit) {
  for (const int workers : {2, 4, 5}) {
    RunConfig config = small_config("local-sgd", workers, "sim");
    config.model = kSmallPerceptron;
    config.schedule.batch = 200 / static_cast<std::size_t>(workers) / 5;
    config.options = {{"period", "3"}};
    const std::vector<float> local_sgd = train_small(config).model;
    config.strategy = "fedavg";
    config.options = {{"period", "3"}, {"reset", "false"}};
    EXPECT_EQ(train_small(config).model, local_sgd);
    for (const char* mode : {"sync", "sync-once"}) {
      for (const char* fabric : {"sim", "threads"}) {
        SCOPED_TRACE(fmt::format("{} on {} with {} workers", mode, fabric, workers));
        config.strategy = "ist";
        config.fabric.name = fabric;
        config.options = {{"mode", mode}, {"masks", "uniform"}, {"period", "3"}};
        EXPECT_EQ(train_small(config).model, local_sgd);
      }
    }
  }
}

// Which any model can have, buffers and all.
TEST(IstTraining, UniformMasksNeedNoPerceptron) {
  RunConfig config = ist_config("async", 3);
  config.model = "conv 2 1x2, batchnorm, relu, dense 3";
  config.options["masks"] = "uniform";
  const Trained trained = train_small(config);
  EXPECT_EQ(trained.result.ending, Ending::finished);
  EXPECT_TRUE(trained.result.balance.balanced) << to_text(trained.result.balance);
  EXPECT_GT(*trained.result.state.test_accuracy, 0.5);
}

TEST(IstTraining, ModelsThatCannotBeCutAreRefused) {
  RunConfig config = ist_config("sync", 2);
  for (const char* model : {"conv 2 1x2, relu, dense 3", "dense 8, batchnorm, relu, dense 3", "softmax", "mlp:4-1-3"}) {
    config.model = model;
    EXPECT_THROW((void)train_small(config), UserError) << model;
  }
}

TEST(IstTraining, EveryModeLearnsOnEveryFabric) {
  for (const std::string& mode : kModes) {
    for (const char* fabric : {"sim", "threads"}) {
      for (const int workers : {2, 3, 8}) {
        SCOPED_TRACE(fmt::format("{} on {} with {} workers", mode, fabric, workers));
        RunConfig config = ist_config(mode, workers, fabric);
        if (config.fabric.name == "sim") config = uneven(config);
        config.model = "dense 64, batchnorm batch, relu, dense 48, tanh, dense 3";
        config.schedule.batch = 4;
        config.epochs = 10;
        const Trained trained = train_small(config);
        EXPECT_EQ(trained.result.ending, Ending::finished);
        EXPECT_TRUE(trained.result.balance.balanced) << to_text(trained.result.balance);
        EXPECT_TRUE(trained.result.balance.dropped.empty());
        EXPECT_GT(*trained.result.state.test_accuracy, 0.65);
        ASSERT_EQ(trained.result.balance.steps.size(), static_cast<std::size_t>(workers));
        for (const std::uint64_t steps : trained.result.balance.steps) EXPECT_GT(steps, 0U);
        if (mode != "async") {
          EXPECT_EQ(trained.result.balance.version_staleness.max(), 0U);
        }
      }
    }
  }
}

// Units are dealt once: weights between units of different workers are what they were, or zero.
TEST(IstTraining, WhatNobodyOwnsStaysAsItWas) {
  RunConfig config = ist_config("sync-once", 2);
  const data::Dataset dataset = small_dataset();
  const ReplicaSet replicas(config, dataset);
  const std::span<const float> first = replicas.viewers()[0]->weights();
  config.options["unowned"] = "keep";
  const std::vector<float> kept = train_small(config).model;
  config.options["unowned"] = "zero";
  const std::vector<float> zeroed = train_small(config).model;
  const params::Slice& block = *replicas.layout().find("dense2.weight");
  std::size_t same = 0;
  std::size_t zero = 0;
  for (std::size_t i = block.offset; i < block.offset + block.size; ++i) {
    same += kept[i] == first[i] ? 1 : 0;
    zero += zeroed[i] == 0 ? 1 : 0;
  }
  // Nine units are five and four, eight are four and four: 36 weights of 72 have an owner.
  EXPECT_EQ(same, 36U);
  EXPECT_EQ(zero, 36U);
}

TEST(IstTraining, DealtAnewEveryWeightIsTrainedInTime) {
  RunConfig config = ist_config("sync", 2);
  config.options["unowned"] = "keep";
  config.epochs = 10;
  const data::Dataset dataset = small_dataset();
  const ReplicaSet replicas(config, dataset);
  const std::span<const float> first = replicas.viewers()[0]->weights();
  const std::vector<float> model = train_small(config).model;
  std::size_t same = 0;
  for (std::size_t i = 0; i < model.size(); ++i) same += model[i] == first[i] ? 1 : 0;
  EXPECT_LT(same, model.size() / 10);
}

// A part is less work, and the simulator's clock knows.
TEST(IstTraining, VirtualTimeIsThatOfTheParts) {
  const auto seconds_of = [](const std::string& strategy, const std::map<std::string, std::string>& options) {
    RunConfig config = small_config(strategy, 4, "sim");
    config.model = "dense 400, relu, dense 400, relu, dense 3";
    config.options = options;
    config.fabric.sim.network.link = {};
    config.epochs = 1;
    return train_small(config).result.balance.time[2].compute;
  };
  const double whole = to_seconds(seconds_of("local-sgd", {}));
  const double part = to_seconds(seconds_of("ist", {}));
  // Forward, in multiply-adds: 4·400 + 400·400 + 400·3, and a quarter of each, of the middle a sixteenth.
  EXPECT_NEAR(part / whole, (400 + 10'000 + 300) / (1600.0 + 160'000 + 1200), 1e-6);
  EXPECT_NEAR(to_seconds(seconds_of("ist", {{"masks", "uniform"}})) / whole, 1, 1e-9);
}

TEST(IstTraining, SaysAtTheStartHowMuchIsOwned) {
  const auto note_of = [](const std::string& mode, int workers, const std::string& unowned) {
    Notes notes;
    RunConfig config = ist_config(mode, workers);
    config.model = "mlp:4-100-100-3";
    config.options["unowned"] = unowned;
    (void)train_small(config, {.observer = &notes});
    return notes.notes.empty() ? "" : notes.notes[0];
  };
  // 4·100 + 100 + 100·100 + 100 + 300 + 3; of the middle four blocks of 25·25.
  EXPECT_EQ(note_of("async", 4, "keep"), "ist: 4 subnets own 31.2 % of 10903 weights; the rest keeps its initial values");
  EXPECT_EQ(note_of("sync-once", 4, "zero"), "ist: 4 subnets own 31.2 % of 10903 weights; the rest is zero");
  EXPECT_EQ(note_of("sync", 4, "zero"), "ist: 4 subnets own 31.2 % of 10903 weights at a time; the rest is zero until it is dealt");
  EXPECT_EQ(note_of("sync", 1, "zero"), "ist: 1 subnets own all of 10903 weights");
}

// The checkpoint's weights are of the whole network, and give what the run says.
TEST(IstTraining, CheckpointsAreOfTheWholeModel) {
  const std::string folder = fmt::format("{}starling_ist_training_{}", testing::TempDir(), ::getpid());
  for (const std::string& mode : kModes) {
    fs::remove_all(folder);
    const RunConfig config = uneven(ist_config(mode, 3));
    RunDirectory directory = RunDirectory::create(folder, config);
    const Trained trained = train_small(config, {.directory = &directory});
    const Checkpoint checkpoint = CheckpointStore(directory.checkpoints_path()).read("latest");
    const data::Dataset dataset = small_dataset();
    const std::unique_ptr<compute::Replica> replica =
        compute::make_replica(kSmallPerceptron, compute::Problem::of(dataset.test), config.seed(), 0);
    ASSERT_EQ(checkpoint.weights.layout, replica->layout());
    EXPECT_EQ(checkpoint.weights.values, trained.model);
    std::copy(trained.model.begin(), trained.model.end(), replica->weights().begin());
    const compute::Evaluation evaluation = evaluate(*replica, dataset.test, {});
    EXPECT_DOUBLE_EQ(static_cast<double>(evaluation.correct) / static_cast<double>(evaluation.samples),
                     *trained.result.state.test_accuracy);
  }
  fs::remove_all(folder);
}

// Without meetings the coordinator looks at the model at the end of its epochs, and nobody waits for that.
TEST(IstTraining, TheCoordinatorTestsOnTheSide) {
  RunConfig config = uneven(ist_config("async", 3));
  config.checkpoint_every = 0;
  config.epochs = 4;
  const Trained trained = train_small(config);
  config.evaluate_every = 0;
  const Trained unseen = train_small(config);
  EXPECT_EQ(trained.model, unseen.model);
  EXPECT_EQ(trained.result.state.seconds, unseen.result.state.seconds);
  EXPECT_GT(trained.result.state.best_test_accuracy.value_or(0), 0.5);
}

}  // namespace
}  // namespace starling::run
