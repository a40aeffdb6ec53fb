// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What must be the same as something else, through the trainer: one worker and plain training, many workers and one, one strategy with some
// settings and another, one fabric and another. And what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/codec/codec.h"
#include "starling/strategy/registry.h"
#include "unit/run/small_training.h"

namespace starling::run {
namespace {

using Options = std::map<std::string, std::string>;

RunConfig with(RunConfig config, const Options& options) {
  config.options = options;
  return config;
}

// Parameters only: the buffer of the small model counts batches, of which many workers see fewer each.
std::vector<float> parameters_of(const Trained& trained) { return {trained.model.begin(), trained.model.end() - 1}; }

Trained expect_trained(const RunConfig& config) {
  Trained trained = train_small(config);
  EXPECT_EQ(trained.result.ending, Ending::finished);
  EXPECT_TRUE(trained.result.balance.balanced) << to_text(trained.result.balance);
  EXPECT_EQ(trained.result.state.samples, 400U);
  const float largest = *std::max_element(trained.model.begin(), trained.model.end() - 1);
  EXPECT_GT(largest, 0.1F) << "nothing was learnt, so there is nothing to compare";
  return trained;
}

void expect_near(const Trained& a, const Trained& b, double tolerance) {
  const std::vector<float> x = parameters_of(a);
  const std::vector<float> y = parameters_of(b);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], tolerance) << "parameter " << i;
}

void expect_far(const Trained& a, const Trained& b, double tolerance) {
  const std::vector<float> x = parameters_of(a);
  const std::vector<float> y = parameters_of(b);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, static_cast<double>(std::abs(x[i] - y[i])));
  EXPECT_GT(largest, tolerance);
}

struct Reduction {
  std::string strategy;
  Options options{};
};

TEST(StrategyEquivalence, OneWorkerIsPlainTrainingBitForBit) {
  const std::vector<Reduction> reductions{{"sync"},
                                          {"local-sgd", {{"period", "3"}}},
                                          {"fedavg", {{"period", "3"}, {"reset", "false"}}},
                                          {"ssp"},
                                          {"ssp", {{"bound", "0"}}},
                                          {"async"},
                                          {"async", {{"staleness_lr", "inverse"}}},
                                          {"async", {{"staleness_lr", "inverse-plus-one"}}},
                                          {"downpour", {{"n_push", "1"}, {"n_fetch", "1"}}},
                                          {"agn", {{"k", "1"}}},
                                          {"dc-asgd", {{"lambda", "0"}}},
                                          {"dc-asgd", {{"lambda", "0.04"}}},
                                          {"hogwild"},
                                          {"hogwild", {{"staleness_lr", "inverse-plus-one"}}},
                                          {"gosgd"},
                                          {"gosgd", {{"probability", "1"}, {"topology", "ring"}}},
                                          {"ad-psgd"},
                                          {"ad-psgd", {{"topology", "ring"}}}};
  for (const char* optimiser : {"sgd", "momentum", "nesterov", "adagrad", "adam"}) {
    RunConfig plain_config = small_config("sequential", 1, "threads");
    plain_config.optimiser.name = optimiser;
    const Trained plain = expect_trained(plain_config);
    for (const Reduction& reduction : reductions) {
      for (const char* fabric : {"threads", "sim"}) {
        SCOPED_TRACE(fmt::format("{} with {} on {}", reduction.strategy, optimiser, fabric));
        RunConfig config = with(small_config(reduction.strategy, 1, fabric), reduction.options);
        config.optimiser.name = optimiser;
        EXPECT_EQ(expect_trained(config).model, plain.model);
      }
    }
  }
}

// A schedule that changes, an optimiser that changes and weight decay travel with a step.
TEST(StrategyEquivalence, OneWorkerIsPlainTrainingBitForBitWithASchedule) {
  const auto configured = [](const std::string& strategy) {
    RunConfig config = small_config(strategy, 1, "sim");
    config.optimiser = {.name = "adam"};
    config.schedule.kind = "cosine";
    config.schedule.warmup_epochs = 0.7;
    config.schedule.two_stage = true;
    return config;
  };
  RunConfig plain = configured("sequential");
  const std::vector<float> expected = expect_trained(plain).model;
  for (const char* strategy : {"sync", "async", "ssp", "hogwild"})
    EXPECT_EQ(expect_trained(configured(strategy)).model, expected) << strategy;
  plain.optimiser.weight_decay = 0.01;
  const std::vector<float> decayed = expect_trained(plain).model;
  EXPECT_NE(decayed, expected);
  for (const char* strategy : {"sync", "async"}) {
    RunConfig config = configured(strategy);
    config.optimiser.weight_decay = 0.01;
    EXPECT_EQ(expect_trained(config).model, decayed) << strategy;
  }
}

TEST(StrategyEquivalence, TheNumberOfServersDoesNotMatterToOneWorker) {
  const strategy::Registry registry = strategy::Registry::built_in();
  for (const strategy::Description& description : registry.all()) {
    if (!description.needs_servers) continue;
    for (const char* fabric : {"threads", "sim"}) {
      RunConfig config = small_config(description.name, 1, fabric);
      const std::vector<float> one = expect_trained(config).model;
      for (const int servers : {2, 3}) {
        config.servers = servers;
        EXPECT_EQ(expect_trained(config).model, one) << description.name << " on " << fabric << " with " << servers << " servers";
      }
    }
  }
}

// 200 samples are four batches of 48 and one of 8, which does not divide by the workers and leaves some of them without.
TEST(StrategyEquivalence, ManySynchronousWorkersAreOneWithALargerBatch) {
  for (const char* optimiser : {"sgd", "momentum", "adam"}) {
    RunConfig alone = small_config("sequential", 1, "threads");
    alone.schedule.batch = 48;
    alone.optimiser.name = optimiser;
    const Trained one = expect_trained(alone);
    for (const int workers : {2, 3, 4, 6, 8}) {
      for (const char* fabric : {"threads", "sim"}) {
        SCOPED_TRACE(fmt::format("{} workers with {} on {}", workers, optimiser, fabric));
        RunConfig config = uneven(small_config("sync", workers, fabric));
        if (config.fabric.name == "threads") config.fabric.sim.speeds.clear();
        config.schedule.batch = alone.schedule.batch / static_cast<std::size_t>(workers);
        config.optimiser.name = optimiser;
        expect_near(expect_trained(config), one, 1e-5);
      }
    }
  }
}

TEST(StrategyEquivalence, SynchronousTrainingIsTheSameOnEveryFabricBitForBit) {
  for (const int workers : {2, 3, 5, 8}) {
    for (const char* algorithm : {"automatic", "flat", "direct", "ring", "hierarchical"}) {
      SCOPED_TRACE(fmt::format("{} workers, {}", workers, algorithm));
      const Options options{{"all_reduce", algorithm}, {"subgroup", "2"}};
      const Trained threads = expect_trained(with(small_config("sync", workers, "threads"), options));
      const Trained sim = expect_trained(uneven(with(small_config("sync", workers, "sim"), options)));
      EXPECT_EQ(sim.result.weights_sha256, threads.result.weights_sha256);
    }
    const Trained local_threads = expect_trained(with(small_config("local-sgd", workers, "threads"), {{"period", "3"}}));
    const Trained local_sim = expect_trained(uneven(with(small_config("local-sgd", workers, "sim"), {{"period", "3"}})));
    EXPECT_EQ(local_sim.result.weights_sha256, local_threads.result.weights_sha256) << workers;
  }
}

TEST(StrategyEquivalence, SharedMemoryIsRefusedWhereThereIsNone) {
  const Options options{{"all_reduce", "shared-memory"}};
  EXPECT_EQ(expect_trained(with(small_config("sync", 3, "threads"), options)).model,
            expect_trained(small_config("sync", 3, "threads")).model);
  EXPECT_THROW(train_small(with(small_config("sync", 3, "sim"), options)), UserError);
}

TEST(StrategyEquivalence, SspWithoutSlackIsSynchronous) {
  for (const char* optimiser : {"sgd", "momentum"}) {
    for (const int workers : {2, 3, 5}) {
      for (const char* fabric : {"threads", "sim"}) {
        SCOPED_TRACE(fmt::format("{} workers with {} on {}", workers, optimiser, fabric));
        RunConfig sync = small_config("sync", workers, fabric);
        RunConfig ssp = with(small_config("ssp", workers, fabric), {{"bound", "0"}});
        if (std::string(fabric) == "sim") ssp = uneven(ssp);
        sync.optimiser.name = ssp.optimiser.name = optimiser;
        expect_near(expect_trained(ssp), expect_trained(sync), 1e-5);
      }
    }
  }
  RunConfig loose = uneven(with(small_config("ssp", 3, "sim"), {{"bound", "3"}}));
  expect_far(expect_trained(loose), expect_trained(small_config("sync", 3, "sim")), 1e-4);
}

// A worker whose first pull comes after the first push of another must still compute its first gradient on the first weights.
TEST(StrategyEquivalence, SspWithoutSlackIsSynchronousWhereAWorkerStartsLate) {
  using namespace std::chrono_literals;
  RunConfig ssp = with(small_config("ssp", 3, "sim"), {{"bound", "0"}});
  ssp.fabric.sim.network.rules = {{.from = fabric::RankSet{1}, .latency = 100ms}};
  expect_near(expect_trained(ssp), expect_trained(small_config("sync", 3, "sim")), 1e-5);
}

// Every worker averages what it has used, so the last batch must be as large as the others.
TEST(StrategyEquivalence, LocalSgdWithoutLocalStepsIsSynchronous) {
  for (const int workers : {2, 4, 5}) {
    for (const char* fabric : {"threads", "sim"}) {
      RunConfig sync = small_config("sync", workers, fabric);
      sync.optimiser.name = "sgd";
      sync.schedule.batch = 40 / static_cast<std::size_t>(workers);
      RunConfig local = sync;
      local.strategy = "local-sgd";
      local.options = {{"period", "1"}};
      expect_near(expect_trained(local), expect_trained(sync), 1e-5);
    }
  }
}

TEST(StrategyEquivalence, DcAsgdWithoutCompensationIsThePlainServerBitForBit) {
  for (const char* optimiser : {"sgd", "momentum", "adam"}) {
    for (const int servers : {1, 2}) {
      RunConfig async = uneven(small_config("async", 4, "sim"));
      async.optimiser.name = optimiser;
      async.servers = servers;
      RunConfig dc = async;
      dc.strategy = "dc-asgd";
      dc.options = {{"lambda", "0"}};
      const Trained plain = expect_trained(async);
      EXPECT_GT(plain.result.balance.version_staleness.mean(), 1);
      const Trained same = expect_trained(dc);
      EXPECT_EQ(same.result.weights_sha256, plain.result.weights_sha256);
      dc.options = {{"lambda", "2"}};
      EXPECT_NE(expect_trained(dc).result.weights_sha256, plain.result.weights_sha256);
    }
  }
}

// With other workers around, updates are stale, and the options differ.
TEST(StrategyEquivalence, AStalenessAwareRateMakesStaleStepsSmaller) {
  RunConfig config = uneven(small_config("async", 4, "sim"));
  config.optimiser.name = "sgd";
  const Trained none = expect_trained(with(config, {{"staleness_lr", "none"}}));
  const Trained inverse = expect_trained(with(config, {{"staleness_lr", "inverse"}}));
  const Trained plus_one = expect_trained(with(config, {{"staleness_lr", "inverse-plus-one"}}));
  const auto length = [](const Trained& trained) {
    double sum = 0;
    for (const float value : parameters_of(trained)) sum += static_cast<double>(value) * static_cast<double>(value);
    return sum;
  };
  EXPECT_LT(length(inverse), length(none));
  EXPECT_LT(length(plus_one), length(inverse));
  EXPECT_EQ(expect_trained(config).model, inverse.model) << "inverse is the default";
}

TEST(StrategyEquivalence, EveryCodecRunsAndItsBooksBalance) {
  for (const codec::CodecDescription& codec : codec::codec_descriptions()) {
    for (const char* strategy : {"sync", "async", "local-sgd", "fedavg", "ssp", "downpour", "agn", "dc-asgd"}) {
      const bool sends_gradients = strategy::Registry::built_in().find(strategy).sends == strategy::Sends::gradients;
      if (codec.name == "dgc" && !sends_gradients) continue;
      for (const char* fabric : {"threads", "sim"}) {
        SCOPED_TRACE(fmt::format("{} with {} on {}", strategy, codec.name, fabric));
        RunConfig config = small_config(strategy, 3, fabric);
        if (config.fabric.name == "sim") config = uneven(config);
        if (config.strategy == "local-sgd" || config.strategy == "fedavg") config.options = {{"period", "2"}};
        config.codec = codec.name;
        if (codec.name == "topk" || codec.name == "randomk") config.codec += ":0.25";
        if (codec.name == "threshold") config.codec += sends_gradients ? ":0.2" : ":0.01";
        const Trained coded = expect_trained(config);
        EXPECT_LT(*coded.result.train_loss, 1.1) << "it does not learn";  // ln 3 at first.
      }
    }
  }
}

TEST(StrategyEquivalence, ACodecThatLosesNothingChangesNothing) {
  for (const char* strategy : {"sync", "async", "local-sgd"}) {
    RunConfig config = uneven(small_config(strategy, 3, "sim"));
    const Trained plain = expect_trained(config);
    config.codec = "fp32";
    EXPECT_EQ(expect_trained(config).result.weights_sha256, plain.result.weights_sha256);
    config.codec = "bf16";
    EXPECT_NE(expect_trained(config).result.weights_sha256, plain.result.weights_sha256);
  }
}

struct Refusal {
  std::function<void(RunConfig&)> change;
  std::string reason;
};

TEST(StrategyEquivalence, WhatMakesNoSenseIsRefusedWithTheReason) {
  const std::vector<Refusal> refusals{
      {[](RunConfig& c) { c.strategy = "esgd"; }, "there is no strategy 'esgd'; there are sequential, sync"},
      {[](RunConfig& c) { c.strategy = "sequential"; }, "strategy sequential is for one worker, but there are 4"},
      {[](RunConfig& c) { c.workers = 0; }, "the number of workers is 0"},
      {[](RunConfig& c) { c.servers = 1; }, "strategy sync has no servers, but --servers is 1"},
      {[](RunConfig& c) { c.strategy = "async", c.servers = 0; }, "strategy async needs at least 1 server"},
      {[](RunConfig& c) { c.strategy = "async", c.servers = 2, c.optimiser.name = "lars"; }, "--optimizer lars needs the norm of whole"},
      {[](RunConfig& c) { c.strategy = "async", c.servers = 2, c.optimiser.clip_norm = 1; }, "--clip-norm needs the norm of whole"},
      {[](RunConfig& c) { c.strategy = "easgd", c.codec = "topk"; }, "strategy easgd sends weights, not gradients or differences"},
      {[](RunConfig& c) { c.strategy = "ea-wild", c.codec = "fp16"; }, "strategy ea-wild sends weights"},
      {[](RunConfig& c) { c.strategy = "hogwild", c.codec = "fp16"; }, "strategy hogwild adds to shared memory, where nobody could decode"},
      {[](RunConfig& c) { c.strategy = "sequential", c.workers = 1, c.codec = "fp16"; }, "strategy sequential sends nothing"},
      {[](RunConfig& c) { c.strategy = "local-sgd", c.codec = "dgc"; }, "corrects the momentum of gradients, but strategy local-sgd"},
      {[](RunConfig& c) { c.codec = "dgc", c.optimiser.name = "adam"; }, "which fits --optimizer sgd, momentum or nesterov, not adam"},
      {[](RunConfig& c) { c.codec = "zip"; }, "there is no codec 'zip'"},
      {[](RunConfig& c) {
         c.strategy = "ea-wild", c.options = {{"group", "3"}};
       },
       "ea-wild.group is 3, but 4 workers can only form groups of 1, 2, 4"},
      {[](RunConfig& c) {
         c.strategy = "easgd", c.options = {{"rho", "-1"}};
       },
       "easgd.rho is '-1', but it is 0 to"},
      {[](RunConfig& c) {
         c.strategy = "ssp", c.options = {{"bond", "1"}};
       },
       "strategy ssp has no option 'bond'; it has bound"},
      {[](RunConfig& c) {
         c.strategy = "downpour", c.options = {{"n_push", "1.5"}};
       },
       "downpour.n_push is '1.5', but it is a whole number"},
      {[](RunConfig& c) {
         c.strategy = "gosgd", c.workers = 7, c.options = {{"topology", "torus"}};
       },
       "7 workers do not fill a torus"},
      {[](RunConfig& c) {
         c.strategy = "ad-psgd", c.workers = 5, c.options = {{"topology", "ring"}};
       },
       "on a ring of 5 workers active and passive cannot take turns, as their number is odd; use 4 or 6, or topology complete"},
      {[](RunConfig& c) { c.strategy = "gosgd", c.codec = "topk"; }, "strategy gosgd sends weights"},
      {[](RunConfig& c) { c.strategy = "async", c.servers = 40; }, "there are 40 servers for a model of 15 parameters"}};
  for (const Refusal& refusal : refusals) {
    RunConfig config = small_config("sync", 4, "threads");
    refusal.change(config);
    try {
      train_small(config);
      ADD_FAILURE() << "accepted: " << refusal.reason;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(refusal.reason), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace starling::run
