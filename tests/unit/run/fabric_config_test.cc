// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/fabric_config.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/run/toml_write.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;

TEST(FabricConfig, AnEmptyFileIsTheDefaults) {
  const FabricConfig config = parse_fabric_config("", "test.toml");
  EXPECT_EQ(config.name, "threads");
  EXPECT_EQ(config.sim.ranks, 1);
  EXPECT_EQ(make_fabric(config)->size(), 1);
}

TEST(FabricConfig, TheMpiFabricIsDescribedButMadeByAJob) {
  const FabricConfig config =
      parse_fabric_config("[fabric]\nname = 'mpi'\n[mpi]\nall_reduce = 'library'\nwindows = 'one-sided'\n", "test.toml");
  EXPECT_TRUE(config.mpi.library_all_reduce);
  EXPECT_TRUE(config.mpi.one_sided_windows);
  validate(config);
  EXPECT_THROW(make_fabric(config), UserError);
  TomlWriter writer;
  write_fabric_tables(config, writer);
  const FabricConfig again = parse_fabric_config(writer.text(), "again.toml");
  EXPECT_TRUE(again.mpi.library_all_reduce);
  EXPECT_TRUE(again.mpi.one_sided_windows);
  try {
    parse_fabric_config("[mpi]\nall_reduce = 'fast'\n", "test.toml");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("mpi.all_reduce is 'fast', but it is ordered or library"), std::string::npos) << error.what();
  }
  FabricConfig fast = config;
  fast.sim.speeds = {{.ranks = {}, .factor = 2}};
  EXPECT_THROW(validate(fast), UserError);
}

// Every key that docs/simulator.md lists, with a value that is not the default.
constexpr const char* kEveryKey = R"(
[fabric]
name = "sim"
ranks = 16
seed = 7
timeout = "5s"
queue_messages = 9
queue_bytes = 1000

[[delay]]
point = "before push"
ranks = "1-3"
time = "gauss:30ms:5ms"

[sim]
pool_threads = 2
stack_bytes = 131072
poll_cost = "2us"
crash_detection = "3ms"

[sim.compute]
time_per_unit = "lognormal:2ms:1ms"

[[speed]]
ranks = 3
factor = 0.5

[sim.network]
latency = "50us"
bandwidth = "10Gbit/s"
jitter = "exponential:5us"
serialise_sending = false
serialise_receiving = false

[[sim.link]]
from = 0
to = "1-15"
latency = "1ms"

[[sim.crash]]
rank = 2
at = "1s"
restart_after = "2s"

[[sim.crash]]
rank = 3
point = "step"
count = 5

[[sim.drop]]
from = 1
to = 2
probability = 0.1

[[sim.duplicate]]
probability = 0.2

[[sim.spike]]
probability = 0.3
delay = "10ms"

[[sim.partition]]
ranks = "0-7"
from = "1s"
until = "2s"
drop = true

[[sim.slow]]
ranks = 5
times = 4
from = "3s"
)";

void expect_every_key(const FabricConfig& config) {
  const fabric::SimOptions& sim = config.sim;
  EXPECT_EQ(config.name, "sim");
  EXPECT_EQ(sim.ranks, 16);
  EXPECT_EQ(sim.seed, 7U);
  EXPECT_EQ(sim.timeout, 5s);
  EXPECT_EQ(sim.queue_messages, 9U);
  EXPECT_EQ(sim.queue_bytes, 1000U);
  ASSERT_EQ(sim.delays.size(), 1U);
  EXPECT_EQ(sim.delays[0].point, "before push");
  EXPECT_TRUE(sim.delays[0].ranks.contains(3) && !sim.delays[0].ranks.contains(0));
  EXPECT_EQ(sim.delays[0].time.text(), "gauss:0.03s:0.005s");
  EXPECT_EQ(sim.pool_threads, 2);
  EXPECT_EQ(sim.stack_bytes, 131072U);
  EXPECT_EQ(sim.poll_cost, 2us);
  EXPECT_EQ(sim.faults.detection, 3ms);
  EXPECT_EQ(sim.compute.time_per_unit.text(), "lognormal:0.002s:0.001s");
  ASSERT_EQ(sim.speeds.size(), 1U);
  EXPECT_TRUE(sim.speeds[0].ranks.contains(3) && !sim.speeds[0].ranks.contains(2));
  EXPECT_EQ(sim.speeds[0].factor, 0.5);
  EXPECT_EQ(sim.network.link.latency, 50us);
  EXPECT_EQ(sim.network.link.bytes_per_second, 1.25e9);
  EXPECT_EQ(sim.network.link.jitter.text(), "exponential:5e-06s");
  EXPECT_FALSE(sim.network.serialise_sending);
  EXPECT_FALSE(sim.network.serialise_receiving);
  ASSERT_EQ(sim.network.rules.size(), 1U);
  EXPECT_EQ(sim.network.rules[0].latency, 1ms);
  EXPECT_FALSE(sim.network.rules[0].bytes_per_second.has_value());  // As for all links.
  EXPECT_TRUE(sim.network.rules[0].to.contains(15) && !sim.network.rules[0].to.contains(0));
  ASSERT_EQ(sim.faults.crashes.size(), 2U);
  EXPECT_EQ(sim.faults.crashes[0].time, 1s);
  EXPECT_EQ(sim.faults.crashes[0].restart_after, 2s);
  EXPECT_EQ(sim.faults.crashes[1].point, "step");
  EXPECT_EQ(sim.faults.crashes[1].count, 5);
  ASSERT_EQ(sim.faults.drops.size(), 1U);
  EXPECT_EQ(sim.faults.drops[0].probability, 0.1);
  EXPECT_TRUE(sim.faults.drops[0].from.contains(1) && !sim.faults.drops[0].to.contains(1));
  ASSERT_EQ(sim.faults.duplicates.size(), 1U);
  ASSERT_EQ(sim.faults.spikes.size(), 1U);
  EXPECT_EQ(sim.faults.spikes[0].delay.mean_seconds, 0.01);
  ASSERT_EQ(sim.faults.partitions.size(), 1U);
  EXPECT_TRUE(sim.faults.partitions[0].drop);
  EXPECT_EQ(sim.faults.partitions[0].interval.until, 2s);
  ASSERT_EQ(sim.faults.slow.size(), 1U);
  EXPECT_EQ(sim.faults.slow[0].times, 4);
  EXPECT_EQ(sim.faults.slow[0].interval.from, 3s);
  EXPECT_EQ(make_fabric(config)->size(), 16);
}

TEST(FabricConfig, ReadsEveryKey) { expect_every_key(parse_fabric_config(kEveryKey, "test.toml")); }

TEST(FabricConfig, WhatIsWrittenReadsBackTheSame) {
  TomlWriter writer;
  write_fabric_tables(parse_fabric_config(kEveryKey, "test.toml"), writer);
  const FabricConfig again = parse_fabric_config(writer.text(), "again.toml");
  expect_every_key(again);
  TomlWriter second;
  write_fabric_tables(again, second);
  EXPECT_EQ(second.text(), writer.text());
}

TEST(FabricConfig, WhatIsWrongIsSaidWithLineAndKey) {
  const auto expect_error = [](const std::string& text, const std::vector<std::string>& parts) {
    try {
      (void)make_fabric(parse_fabric_config(text, "test.toml"));
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      for (const std::string& part : parts)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in: " << error.what();
    }
  };
  expect_error("[fabric]\nrank = 3", {"test.toml:2", "fabric.rank", "Did you mean 'ranks'?"});
  expect_error("[fabrik]\n", {"test.toml:1", "Did you mean 'fabric'?"});
  expect_error("[fabric]\nranks = \"three\"", {"test.toml:2", "fabric.ranks is a string", "a whole number"});
  expect_error("[fabric]\nqueue_messages = -1", {"test.toml:2", "queue_messages is -1"});
  expect_error("[fabric]\nname = \"treads\"", {"'treads'", "Did you mean 'threads'?"});
  expect_error("[fabric]\nranks = 0", {"ranks is 0"});
  expect_error("[fabric]\ntimeout = \"soon\"", {"test.toml:2", "timeout is 'soon'", "as in 30ms"});
  expect_error("[sim.network]\nbandwidth = \"10\"", {"test.toml:2", "bandwidth is '10'"});
  expect_error("[sim]\ncrash = 3", {"test.toml:2", "[[sim.crash]]"});
  expect_error("[[sim.drop]]\nprobability = 0.1\ndelay = \"1s\"", {"test.toml:3", "sim.drop.delay"});
  expect_error("[fabric]\nname = \"sim\"\n[[sim.drop]]\nprobability = 2", {"probability 2"});
  expect_error("[[sim.crash]]\nat = \"1s\"", {"test.toml:1", "needs a 'rank'"});
  expect_error("[[sim.drop]]\nfrom = 1", {"test.toml:1", "needs a 'probability'"});
  expect_error("[[delay]]\npoint = \"step\"", {"needs a 'time'"});
  expect_error("[fabric\n", {"test.toml:1", "not TOML"});
}

TEST(FabricConfig, AMissingFileIsNamed) {
  try {
    (void)read_fabric_config("/nonexistent/file.toml");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/file.toml"), std::string::npos);
  }
}

}  // namespace
}  // namespace starling::run
