// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The books of a run. Every update is known by name (params::UpdateId): the rank that made it enters it as produced; every place where it
// is applied (a server, a replica) enters that, with how stale it was; who drops one says why. When the run is over the books must balance:
// every update was applied exactly once at every place it was meant for, or dropped for a reason.
//
//   Ledger ledger(ranks, places);                       // places: the ranks where every update is to be applied.
//   Stamp stamp{.id = ledger.account(worker).produced(), .version = pulled.version, .contents = pulled.contents};
//   ledger.account(server).applied(stamp, version, contents);    // Just before it is applied.
//   Balance balance = ledger.close(lost_ranks);
//
// Staleness, measured twice for every application:
//   version        updates applied at the place − those that had been applied there when the weights it was computed on were taken
//   gradient sets  |B Δ A|: B the updates in the weights it was computed on, A those applied at the place just before (Tosi et al.)
//
// Thread-safety: an account is used by its rank alone; the ledger itself when no rank runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/time.h"
#include "starling/params/version_vector.h"

namespace starling::ledger {

// How often each value occurred; exact.
class Histogram {
 public:
  void add(std::uint64_t value, std::uint64_t times = 1);
  void add(const Histogram& other);

  std::uint64_t count() const { return count_; }
  double mean() const;                            // 0 if empty.
  std::uint64_t quantile(double fraction) const;  // The smallest value that so many do not exceed: nearest rank. 0 if empty.
  std::uint64_t max() const;
  // Value and how often, ascending, for files and plots.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> entries() const;

  bool operator==(const Histogram&) const = default;

 private:
  std::vector<std::uint64_t> counts_{};             // Of small values, by value.
  std::map<std::uint64_t, std::uint64_t> large_{};  // Of the rest.
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

// How a rank spent its time.
struct TimeUse {
  Duration compute = Duration::zero();        // Its own gradients, delays that were asked for included.
  Duration waiting = Duration::zero();        // For others.
  Duration communication = Duration::zero();  // All else between two gradients: copying, encoding, applying.

  bool operator==(const TimeUse&) const = default;
};

// Why updates were dropped. Text, so that strategies can have reasons of their own; these are the usual ones.
inline constexpr const char* kNotFinite = "not finite";
inline constexpr const char* kSenderLost = "sender lost";
inline constexpr const char* kReceiverLost = "receiver lost";

// One rank's entries.
class Account {
 public:
  // The next update of this rank.
  params::UpdateId produced();
  std::uint64_t produced_count() const { return produced_; }

  // This rank drops an update, its own or one that came to it; it will not be applied at any place not yet reached.
  void dropped(const params::UpdateId& id, const std::string& reason);

  // Applied here. `version` and `contents` are of the weights here, just before.
  void applied(const params::Stamp& stamp, std::uint64_t version, const params::VersionVector& contents);
  // Applied here, on the very weights it was computed on.
  void applied_fresh(const params::UpdateId& id);

  // The latest versions of the shards of one pull: largest − smallest.
  void pulled(std::uint64_t skew) { skew_.add(skew); }

  TimeUse& time() { return time_; }
  void count_bytes_sent(std::uint64_t bytes) { bytes_sent_ = bytes; }  // So far, in all.
  void count_step() { ++steps_; }                                      // A gradient of its own was computed.

  // Counts so far, for progress.
  const Histogram& version_staleness() const { return version_staleness_; }

 private:
  friend class Ledger;
  explicit Account(int rank, int ranks);

  int rank_;
  std::uint64_t produced_ = 0;
  params::VersionVector applied_;                         // Here.
  std::uint64_t applied_twice_ = 0;                       // Must stay 0.
  std::map<std::string, params::VersionVector> dropped_;  // By reason.
  Histogram version_staleness_;
  Histogram set_staleness_;
  Histogram skew_;
  TimeUse time_{};
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t steps_ = 0;
};

struct Straggler {
  int rank = 0;
  double times = 1;  // Its own compute time per step, over the median of the others'.
};

// The books, added up.
struct Balance {
  bool balanced = true;
  std::vector<std::string> errors{};  // "update 17 of rank 2 was applied twice at rank 4", at most ten of them.

  std::uint64_t produced = 0;
  std::uint64_t applied = 0;                       // At all their places.
  std::map<std::string, std::uint64_t> dropped{};  // By reason; an update that did not reach all its places counts here, once.
  Histogram version_staleness{};                   // Of every application.
  Histogram set_staleness{};
  Histogram skew{};  // Of every pull.
  std::uint64_t bytes_sent = 0;
  std::vector<TimeUse> time{};  // By worker.
  std::vector<std::uint64_t> steps{};
  double idle_fraction = 0;              // Waiting over all time, of the workers together.
  std::optional<Straggler> straggler{};  // A worker whose own compute takes at least 1.2 times the median of the others'.
};

class Ledger {
 public:
  // Workers are the ranks 0, …, workers - 1. `places` are the ranks at which every update is to be applied; `ranks` all of the fabric.
  Ledger(int ranks, int workers, std::vector<int> places);
  ~Ledger();

  Account& account(int rank);

  // Adds up. What a rank that is lost never delivered, or never received, is dropped for that reason; anything else that is missing is an
  // error. May be called at any time when all updates under way have arrived, and again later.
  Balance close(const std::vector<int>& lost) const;

  // For checkpoints, when nothing is under way: as JSON. Throws UserError if the text is of another run.
  std::string save() const;
  void restore(const std::string& text);

 private:
  int workers_;
  std::vector<int> places_;
  std::vector<Account> accounts_;
};

}  // namespace starling::ledger
