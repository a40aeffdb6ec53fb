// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The whole way, on real data: what a run must reach.
#include <gtest/gtest.h>

#include "starling/compute/model.h"
#include "starling/data/dataset.h"
#include "starling/run/fabric_config.h"
#include "starling/run/run_config.h"
#include "starling/run/trainer.h"

namespace starling::run {
namespace {

TrainResult train(const RunConfig& config) {
  const data::Dataset dataset = data::load_dataset(config.data, config.data_folder);
  const std::unique_ptr<compute::Replica> replica =
      compute::make_replica(config.model, compute::Problem::of(dataset.train), config.seed(), 0);
  Trainer trainer(config, {replica.get()}, dataset, {});
  trainer.run();
  return trainer.result();
}

// The settings of the published study; its sequential reference reached 89.2 %.
TEST(Accuracy, LenetLearnsFashionMnistInSixEpochs) {
  RunConfig config;
  config.model = "lenet5";
  config.data = "fashion-mnist";
  config.epochs = 6;
  config.schedule.batch = 32;
  config.optimiser.name = "momentum";
  config.optimiser.momentum = 0.9;
  config.schedule.lr = 0.005;
  const TrainResult result = train(config);
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_GE(result.state.test_accuracy.value_or(0), 0.885);
}

TEST(Accuracy, ThreadsAndSimulatorTrainTheSameWeightsOnRealData) {
  RunConfig config;
  config.model = "lenet5";
  config.data = "fashion-mnist:train=12000,test=1000";
  config.epochs = 1;
  const TrainResult threads = train(config);
  config.fabric.name = "sim";
  const TrainResult simulator = train(config);
  EXPECT_EQ(threads.weights_sha256, simulator.weights_sha256);
  EXPECT_GE(threads.state.test_accuracy.value_or(0), 0.75);
}

}  // namespace
}  // namespace starling::run
