// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The sums at the end of a run: for every origin and every place, produced = applied ∪ dropped, and nothing twice.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "starling/base/error.h"
#include "starling/ledger/ledger.h"
#include "starling/ledger/ranges.h"

namespace starling::ledger {
namespace {

constexpr std::size_t kMostErrors = 10;
constexpr double kSlow = 1.2;  // From here on a worker is a straggler.

// Precondition: not empty.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The worker whose own compute takes longest per step, if it takes much longer than that of the others. What a worker waits is not in it:
// in lockstep everybody takes as long as the slowest, and only this tells who that was.
std::optional<Straggler> find_straggler(const std::vector<TimeUse>& time, const std::vector<std::uint64_t>& steps) {
  std::vector<int> ranks;
  std::vector<double> per_step;
  for (std::size_t i = 0; i < time.size(); ++i) {
    if (steps[i] == 0) continue;
    ranks.push_back(static_cast<int>(i));
    per_step.push_back(to_seconds(time[i].compute) / static_cast<double>(steps[i]));
  }
  if (ranks.size() < 2) return std::nullopt;
  const auto slowest = std::max_element(per_step.begin(), per_step.end());
  const Straggler candidate{.rank = ranks[static_cast<std::size_t>(slowest - per_step.begin())], .times = *slowest};
  per_step.erase(slowest);
  const double usual = median(per_step);
  if (usual <= 0 || candidate.times < kSlow * usual) return std::nullopt;
  return Straggler{.rank = candidate.rank, .times = candidate.times / usual};
}

}  // namespace

// The first few things that are wrong, in words.
class Ledger::Errors {
 public:
  // One sentence per number: "update 17 of rank 2 " and the rest.
  void add(int origin, const Ranges& numbers, const std::string& rest) {
    any_ = any_ || !numbers.empty();
    for (const params::NumberSet::Range& range : numbers) {
      for (std::uint64_t number = range.first;; ++number) {
        if (texts_.size() == kMostErrors) return;
        texts_.push_back(fmt::format("update {} of rank {} {}", number, origin, rest));
        if (number == range.last) break;
      }
    }
  }

  bool any() const { return any_; }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  bool any_ = false;
  std::vector<std::string> texts_{};
};

// All entries about the updates of one rank.
struct Ledger::OriginBooks {
  struct Drop {
    int rank = 0;  // Who dropped them.
    std::string reason{};
    Ranges updates{};
    bool here_only = false;  // The place that dropped them speaks for itself alone.
  };

  int origin = 0;
  Ranges produced{};
  std::vector<Ranges> meant{};  // By position in places_, as below.
  std::vector<Ranges> applied{};
  Ranges everywhere{};        // Applied at all places they were meant for.
  std::vector<Drop> drops{};  // Those of the origin first, then by rank.
};

// The usual case, which needs no memory: every place has a prefix, as long as what was produced.
bool Ledger::all_applied(int origin, const Index& applied) const {
  if (!accounts_[static_cast<std::size_t>(origin)].addressed_.empty()) return false;
  const std::uint64_t produced = accounts_[static_cast<std::size_t>(origin)].produced_;
  for (const Account& account : accounts_) {
    for (const auto& [reason, updates] : account.dropped_) {
      if (updates[origin].largest() > 0) return false;
    }
    if (!account.applied_twice_.empty()) return false;
  }
  for (int place = 0; place < static_cast<int>(accounts_.size()); ++place) {
    std::uint64_t found = 0;
    for (const params::VersionVector* updates : applied[static_cast<std::size_t>(place)]) {
      const params::NumberSet& set = (*updates)[origin];
      if (set.largest() == 0) continue;
      if (!set.is_prefix() || found > 0) return false;
      found = set.prefix();
    }
    if (found != (is_place(place) ? produced : 0)) return false;
  }
  return true;
}

Ledger::OriginBooks Ledger::books_of(int origin, const Index& applied, Errors& errors) const {
  OriginBooks books{.origin = origin};
  const Account& own = accounts_[static_cast<std::size_t>(origin)];
  for (const auto& [place, updates] : own.addressed_) {
    if (!is_place(place)) errors.add(origin, updates.ranges(), fmt::format("was meant for rank {}, which is no place for updates", place));
  }
  books.produced = params::NumberSet(own.produced_).ranges();
  books.everywhere = books.produced;
  for (const Account& account : accounts_) {
    for (const Account::Applied& twice : account.applied_twice_) {
      errors.add(origin, twice.updates[origin].ranges(), fmt::format("was applied twice at rank {}", twice.place));
    }
    for (const auto& [reason, updates] : account.dropped_) {
      const OriginBooks::Drop drop{account.rank_, reason, updates[origin].ranges(), account.rank_ != origin && is_place(account.rank_)};
      if (!drop.updates.empty()) books.drops.insert(account.rank_ == origin ? books.drops.begin() : books.drops.end(), drop);
    }
  }
  for (int place = 0; place < static_cast<int>(accounts_.size()); ++place) {
    Ranges here;
    for (const params::VersionVector* updates : applied[static_cast<std::size_t>(place)]) {
      const Ranges more = (*updates)[origin].ranges();
      errors.add(origin, in_both(here, more), fmt::format("was applied twice at rank {}", place));
      here = in_either(here, more);
    }
    errors.add(origin, without(here, books.produced), fmt::format("was applied at rank {}, but never produced", place));
    if (!is_place(place)) {
      errors.add(origin, here, fmt::format("was applied at rank {}, which is no place for updates", place));
      continue;
    }
    Ranges meant = meant_for(place, own).ranges();
    errors.add(origin, without(in_both(here, books.produced), meant),
               fmt::format("was applied at rank {}, for which it was not meant", place));
    books.everywhere = without(books.everywhere, without(meant, here));
    books.meant.push_back(std::move(meant));
    books.applied.push_back(std::move(here));
  }
  return books;
}

void Ledger::check_drops(const OriginBooks& books, Errors& errors) const {
  for (const OriginBooks::Drop& drop : books.drops) {
    errors.add(books.origin, without(drop.updates, books.produced),
               fmt::format("was dropped by rank {} ({}), but never produced", drop.rank, drop.reason));
    if (!drop.here_only) {
      errors.add(books.origin, in_both(drop.updates, books.everywhere),
                 fmt::format("was dropped by rank {} ({}), but applied at all places", drop.rank, drop.reason));
      continue;
    }
    const auto place = std::lower_bound(places_.begin(), places_.end(), drop.rank) - places_.begin();
    errors.add(books.origin, in_both(drop.updates, books.applied[static_cast<std::size_t>(place)]),
               fmt::format("was dropped by rank {} ({}), but applied there", drop.rank, drop.reason));
  }
}

void Ledger::add_origin(const OriginBooks& books, const std::vector<bool>& lost, Balance& balance, Errors& errors) const {
  const bool origin_lost = lost[static_cast<std::size_t>(books.origin)];
  Ranges unexplained;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (origin_lost || lost[static_cast<std::size_t>(places_[i])]) continue;
    Ranges missing = without(books.meant[i], books.applied[i]);
    for (const OriginBooks::Drop& drop : books.drops) {
      if (!drop.here_only || drop.rank == places_[i]) missing = without(missing, drop.updates);
    }
    errors.add(books.origin, missing, fmt::format("was neither applied at rank {} nor dropped", places_[i]));
    unexplained = in_either(unexplained, missing);
  }
  balance.applied += count(books.everywhere);
  Ranges rest = without(without(books.produced, books.everywhere), unexplained);
  for (const OriginBooks::Drop& drop : books.drops) {
    const std::uint64_t here = count(in_both(rest, drop.updates));
    if (here > 0) balance.dropped[drop.reason] += here;
    rest = without(rest, drop.updates);
  }
  if (!rest.empty()) balance.dropped[origin_lost ? kSenderLost : kReceiverLost] += count(rest);
}

void Ledger::add_time(Balance& balance) const {
  TimeUse sum{};
  for (int rank = 0; rank < workers_; ++rank) {
    const Account& account = accounts_[static_cast<std::size_t>(rank)];
    balance.time.push_back(account.time_);
    balance.steps.push_back(account.steps_);
    sum.compute += account.time_.compute;
    sum.waiting += account.time_.waiting;
    sum.communication += account.time_.communication;
  }
  const double all = to_seconds(sum.compute) + to_seconds(sum.waiting) + to_seconds(sum.communication);
  balance.idle_fraction = all > 0 ? to_seconds(sum.waiting) / all : 0;
  balance.straggler = find_straggler(balance.time, balance.steps);
}

Balance Ledger::close(const std::vector<int>& lost) const {
  Balance balance = carried_;
  Errors errors;
  std::vector<bool> is_lost(accounts_.size());
  for (const int rank : lost) {
    STARLING_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < accounts_.size(),
                   fmt::format("a lost rank {} that the ledger does not have", rank));
    is_lost[static_cast<std::size_t>(rank)] = true;
  }
  Index applied(accounts_.size());
  for (const Account& account : accounts_) {
    for (const Account::Applied& entry : account.applied_) applied[static_cast<std::size_t>(entry.place)].push_back(&entry.updates);
    balance.produced += account.produced_;
    balance.bytes_sent += account.bytes_sent_;
    balance.version_staleness.add(account.version_staleness_);
    balance.set_staleness.add(account.set_staleness_);
    balance.skew.add(account.skew_);
  }
  for (const Account& account : accounts_) {
    if (all_applied(account.rank_, applied)) {
      balance.applied += account.produced_;
      continue;
    }
    const OriginBooks books = books_of(account.rank_, applied, errors);
    check_drops(books, errors);
    add_origin(books, is_lost, balance, errors);
  }
  add_time(balance);
  balance.balanced = carried_.balanced && !errors.any();
  for (std::string& error : errors.take()) {
    if (balance.errors.size() < kMostErrors) balance.errors.push_back(std::move(error));
  }
  return balance;
}

}  // namespace starling::ledger
