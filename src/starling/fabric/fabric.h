// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A fabric makes endpoints and runs a program on every rank.
//
//   ThreadsFabric fabric({.ranks = 4});
//   RunReport report = fabric.run([](Endpoint& endpoint) { return collective::barrier(endpoint, Group::world(endpoint.size())); });
//   if (!report.ok()) std::cerr << report.summary();
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "starling/base/distribution.h"
#include "starling/base/result.h"
#include "starling/base/time.h"
#include "starling/fabric/endpoint.h"
#include "starling/fabric/rank_set.h"

namespace starling::fabric {

// A delay on some ranks whenever they pass a named point; drawn anew each time, from a random stream of the rule's own.
struct DelayRule {
  std::string point{};
  RankSet ranks{};
  Distribution time{};
};

// Ranks that compute `factor` times as fast as they would: at 0.5 they take twice the time. Factors multiply. Threads can only be slowed
// down: they sleep for the rest of the time.
struct SpeedRule {
  RankSet ranks{};
  double factor = 1;
};

// What every fabric needs to know.
struct FabricOptions {
  int ranks = 1;
  std::uint64_t seed = 1;
  Duration timeout = std::chrono::seconds(30);  // What Deadline::standard() means.
  std::size_t queue_messages = 64;              // Per (sender, receiver).
  std::size_t queue_bytes = std::size_t{256} << 20;
  std::vector<DelayRule> delays{};
  std::vector<SpeedRule> speeds{};

  // The product of the factors of this rank.
  double speed(Rank rank) const;

  // For a run that goes on from where another ended: what its clock showed, and the number of its last realignment (Endpoint::realign).
  Time start_time = Time::zero();
  std::uint64_t start_number = 0;

  // Throws UserError if a value is out of range.
  void validate() const;
};

// Ranks that are real can only be slowed down. Throws UserError if this one is to be faster than it is; `what` says what ranks are.
void check_not_faster(const FabricOptions& options, int rank, const char* what);

// How one rank ended.
struct RankOutcome {
  enum class Kind { finished, failed, crashed };

  Rank rank = 0;
  Kind kind = Kind::finished;
  std::string message{};       // Why it did not finish; empty if it did.
  std::exception_ptr error{};  // What its body threw, if it threw.
};

struct RunReport {
  std::vector<RankOutcome> outcomes{};  // One per rank that lived in this process, by rank.
  std::string deadlock{};               // Who waited for what when nothing could happen any more; only the simulator can tell.

  bool ok() const;

  // The deadlock, if there was one, and a line for each rank that did not finish; empty when all did.
  std::string summary() const;

  // Throws what the first rank (by number) threw, if any did.
  void rethrow() const;
};

// The program of a rank. Returning a Failure, or throwing, makes the rank lost in the eyes of the others.
using Body = std::function<Status(Endpoint&)>;

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual int size() const = 0;

  // The ranks that live in this process, in order: all of them, unless the fabric joins several processes.
  virtual std::vector<Rank> local_ranks() const;

  // Runs the body once for every rank that lives in this process and returns when all of them have ended. May be called again; each
  // call starts from empty queues, no windows and time zero.
  virtual RunReport run(const Body& body) = 0;
};

// Runs the body of one rank and turns what it returns or throws into an outcome. For implementers of fabrics.
RankOutcome run_body(const Body& body, Endpoint& endpoint);

}  // namespace starling::fabric
