// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The books of a run. Every update is known by name (params::UpdateId): the rank that made it enters it as produced; every place where it
// is applied (a server, a replica) enters that, with how stale it was; who drops one says why. When the run is over the books must balance:
// every update was applied exactly once at every place it was meant for, or dropped for a reason. docs/ledger.md explains it to users.
//
//   Ledger ledger(ranks, workers, places);              // places: the ranks where every update is to be applied.
//   Stamp stamp{.id = ledger.account(worker).produced(), .version = pulled.version, .contents = pulled.contents};
//   ledger.account(server).applied(stamp, version, contents);    // Just before it is applied.
//   Balance balance = ledger.close(lost_ranks);
//
// Staleness, measured twice for every application:
//   version        updates applied at the place − those that had been applied there when the weights it was computed on were taken. Where
//                  these came from another place, which may have been ahead, it is at least 0.
//   gradient sets  |B Δ A|: B the updates in the weights it was computed on, A those applied at the place just before (Tosi et al.)
//
// Cost: produced() is an addition; applied() compares two version vectors, a number per origin, and takes no memory once the first update
// was applied, as long as updates of one origin arrive in order.
//
// Thread-safety: an account is used by its rank alone; the ledger itself when no rank runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/base/time.h"
#include "starling/ledger/histogram.h"
#include "starling/params/version_vector.h"

namespace starling::ledger {

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
inline constexpr const char* kNoRoom = "no room at the receiver";
inline constexpr const char* kLostOnTheWay = "lost on the way";

// One rank's entries. On cache lines of its own, because the ranks write at the same time.
class alignas(64) Account {
 public:
  // The next update of this rank, meant for every place of the ledger.
  params::UpdateId produced();
  // The same, meant for these places alone: where ranks talk to some others only. An account uses the one or the other. Precondition
  // (checked): the places differ, and there is at least one.
  params::UpdateId produced_for(std::span<const int> places);
  std::uint64_t produced_count() const { return produced_; }

  // This rank drops an update; the first reason is the one that counts. A place that drops what came to it speaks for itself alone. The
  // origin, and a rank that only passes it on, speak for every place that is not yet reached.
  void dropped(const params::UpdateId& id, const std::string& reason);

  // Applied here. `version` and `contents` are of the weights here, just before.
  void applied(const params::Stamp& stamp, std::uint64_t version, const params::VersionVector& contents);
  // Applied here, on the very weights it was computed on.
  void applied_fresh(const params::UpdateId& id);
  // Applied by this rank at another's place, through a window. All else as above.
  void applied_at(int place, const params::Stamp& stamp, std::uint64_t version, const params::VersionVector& contents);

  // Applied by this rank in a window at `place`, where all that is applied has a number in one order: `version` were applied before it,
  // `read` of them when the weights it was computed on were read. Both measures of staleness are then the difference.
  void applied_in_order(int place, const params::UpdateId& id, std::uint64_t read, std::uint64_t version);

  // Applied here, by a strategy that knows itself how stale it was: as where models are mixed and not moved.
  void applied_measured(const params::UpdateId& id, std::uint64_t version_staleness, std::uint64_t set_staleness);

  // What has been applied at this rank's place.
  const params::VersionVector& contents();

  // The latest versions of the shards of one pull: largest − smallest.
  void pulled(std::uint64_t skew) { skew_.add(skew); }

  TimeUse& time() { return time_; }
  void count_bytes_sent(std::uint64_t bytes) { bytes_sent_ = bytes; }  // So far, in all.
  void count_step() { ++steps_; }                                      // A gradient of its own was computed.

  std::uint64_t bytes_sent() const { return bytes_sent_; }

  // The same for all ranks to see while this one goes on: applications so far, and the sum of their staleness in versions.
  std::uint64_t live_applications() const;
  std::uint64_t live_staleness() const;
  // Of a rank in another process: what it has told of itself.
  void show_live(std::uint64_t applications, std::uint64_t staleness);
  const Histogram& version_staleness() const { return version_staleness_; }
  const Histogram& skew() const { return skew_; }

 private:
  friend class Ledger;

  // What this rank has applied at one place: nearly always its own, or that of one other.
  struct Applied {
    int place = 0;
    params::VersionVector updates{};
  };

  Account(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  void check(const params::UpdateId& id) const;
  void enter(int place, const params::UpdateId& id);
  void show(std::uint64_t staleness);

  int rank_;
  int ranks_;
  std::uint64_t produced_ = 0;
  std::map<int, params::NumberSet> addressed_{};  // By place, where updates are not meant for all.
  std::vector<Applied> applied_{};
  std::vector<Applied> applied_twice_{};                    // Must stay empty.
  std::map<std::string, params::VersionVector> dropped_{};  // By reason.
  Histogram version_staleness_{};
  Histogram set_staleness_{};
  Histogram skew_{};
  TimeUse time_{};
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t steps_ = 0;
  // Written by this rank and read by others, both atomically; not part of the books.
  mutable std::uint64_t live_applications_ = 0;
  mutable std::uint64_t live_staleness_ = 0;
};

struct Straggler {
  int rank = 0;
  double times = 1;  // Its own compute time per step, over the median of the others' (of those that made a step).
};

// The books, added up.
struct Balance {
  bool balanced = true;
  std::vector<std::string> errors{};  // "update 17 of rank 2 was applied twice at rank 4", at most ten of them.

  std::uint64_t produced = 0;
  std::uint64_t applied = 0;                       // At all places, those that were lost later or sooner included.
  std::map<std::string, std::uint64_t> dropped{};  // By reason; an update that did not reach all places counts here, once.
  Histogram version_staleness{};                   // Of every application.
  Histogram set_staleness{};
  Histogram skew{};  // Of every pull.
  std::uint64_t bytes_sent = 0;
  std::vector<TimeUse> time{};  // By worker.
  std::vector<std::uint64_t> steps{};
  double idle_fraction = 0;              // Waiting over all time, of the workers together.
  std::optional<Straggler> straggler{};  // The slowest worker, if its own compute takes at least 1.2 times the median of the others'.
};

class Ledger {
 public:
  // Workers are the ranks 0, …, workers - 1. `places` are the ranks at which every update is to be applied, at least one; `ranks` all of
  // the fabric.
  Ledger(int ranks, int workers, std::vector<int> places);
  ~Ledger();

  Account& account(int rank);

  // Adds up. What a rank that is lost never delivered, or never received, is dropped for that reason; anything else that is missing is an
  // error. May be called at any time when all updates under way have arrived, and again later.
  Balance close(const std::vector<int>& lost) const;

  // Enters what these ranks, which are lost, have produced and never delivered, and what was meant for them and they never applied, as
  // dropped for good: so that a run can go on with a new rank in their place. May be called when all other updates have arrived.
  void write_off(const std::vector<int>& lost);

  // For checkpoints, when nothing is under way: as JSON. Throws UserError if the text is no such thing or of another run, and then changes
  // nothing. References to accounts stay valid.
  std::string save() const;
  void restore(const std::string& text);

  // For a run that goes on with other ranks: closes the books of the run before, a text of save(), and adds their totals to every balance
  // from now on. Times and steps are by worker, and are not carried on. Throws UserError as restore() does. Precondition: these books are
  // empty.
  void carry(const std::string& text);
  const Balance& carried() const { return carried_; }

  // The same for the account of one rank: how the books of ranks in other processes come together in one.
  std::string save_account(int rank) const;
  void restore_account(int rank, const std::string& text);

 private:
  struct AccountFile;
  struct CarriedFile;
  struct OriginBooks;
  class Errors;
  using Index = std::vector<std::vector<const params::VersionVector*>>;

  bool all_applied(int origin, const Index& applied) const;
  OriginBooks books_of(int origin, const Index& applied, Errors& errors) const;
  void check_drops(const OriginBooks& books, Errors& errors) const;
  void add_origin(const OriginBooks& books, const std::vector<bool>& lost, Balance& balance, Errors& errors) const;
  void add_time(Balance& balance) const;
  bool is_place(int rank) const;
  bool was_applied(int place, const params::UpdateId& id) const;
  params::NumberSet meant_for(int place, const Account& origin) const;

  int workers_;
  std::vector<int> places_;
  std::vector<Account> accounts_;
  Balance carried_{};  // Totals of runs with other ranks, before this one.
};

// For people: a line for the updates, one for each kind of staleness, the times of the workers, and what is wrong if anything is. Every
// line ends with a line feed.
std::string to_text(const Balance& balance);

}  // namespace starling::ledger
