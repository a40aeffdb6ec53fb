// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Everything the simulator can be told. All of it is deterministic given the seed; every fault is off by default. The same knobs
// with their names in configuration files are described in docs/simulator.md.
#pragma once

#include <iosfwd>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/distribution.h"
#include "starling/base/time.h"
#include "starling/fabric/fabric.h"
#include "starling/fabric/rank_set.h"

namespace starling::fabric {

// A stretch of virtual time, the end not included.
struct Interval {
  Time from = Time::zero();
  Time until = kEndOfTime;

  bool contains(Time time) const { return from <= time && time < until; }
};

struct ComputeModel {
  Distribution time_per_unit = Distribution::constant(std::chrono::milliseconds(1));  // Drawn anew for every compute().
};

// One direction of one connection. A message of n bytes that meets no other is there after latency + jitter + n / bandwidth.
struct LinkModel {
  Duration latency = std::chrono::microseconds(10);
  double bytes_per_second = std::numeric_limits<double>::infinity();
  Distribution jitter{};  // Drawn for every message; order within a link is kept all the same.
};

// Other values for some links; what a rule leaves out is as for all links.
struct LinkRule {
  RankSet from{};
  RankSet to{};
  std::optional<Duration> latency{};
  std::optional<double> bytes_per_second{};
  std::optional<Distribution> jitter{};
};

struct NetworkModel {
  LinkModel link{};               // Where no rule matches.
  std::vector<LinkRule> rules{};  // The last that matches counts.

  // A rank's adapter sends one message at a time, and takes in one at a time, each at the link's bandwidth. It is what makes a
  // server with many clients the bottleneck.
  bool serialise_sending = true;
  bool serialise_receiving = true;
};

// A rank stops in the middle of what it does, at a time or when it passes a point for the count-th time.
struct CrashRule {
  Rank rank = 0;
  std::optional<Time> time{};
  std::string point{};
  int count = 1;
  std::optional<Duration> restart_after{};  // Then its body starts again, with empty queues and incarnation() one higher.
};

// Something that befalls each message of the matching links with a probability.
struct MessageFault {
  RankSet from{};
  RankSet to{};
  double probability = 0;
  Distribution delay{};       // For delay spikes only.
  bool offered_only = false;  // Only messages that were sent without a promise (Endpoint::offer).
};

// Cuts every link between the ranks and the others while the interval lasts.
struct PartitionRule {
  RankSet ranks{};
  Interval interval{};
  bool drop = false;  // Messages sent meanwhile are lost; otherwise they wait for the end of the partition, as with TCP.
};

// Ranks whose compute() takes `times` as long when it begins while the interval lasts.
struct SlowRule {
  RankSet ranks{};
  double times = 1;
  Interval interval{};
};

struct FaultModel {
  std::vector<CrashRule> crashes{};
  Duration detection = Duration::zero();  // From a crash until the other ranks hear of it.
  std::vector<MessageFault> drops{};
  std::vector<MessageFault> duplicates{};
  std::vector<MessageFault> spikes{};
  std::vector<PartitionRule> partitions{};
  std::vector<SlowRule> slow{};
};

struct SimOptions : FabricOptions {
  ComputeModel compute;
  NetworkModel network;
  FaultModel faults;

  Duration poll_cost = std::chrono::microseconds(1);  // Of a poll that finds nothing.
  int pool_threads = 0;                               // That run compute()'s work; 0: one per core. Never changes a result.
  std::size_t stack_bytes = std::size_t{1} << 20;     // Of a rank. Only what is touched takes memory.
  std::ostream* trace = nullptr;                      // Where to write the trace, if anywhere; must outlive run().

  // Throws UserError if a value is out of range.
  void validate() const;
};

}  // namespace starling::fabric
