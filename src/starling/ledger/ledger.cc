// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/ledger/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>

#include "starling/base/error.h"

namespace starling::ledger {
namespace {

// The updates of `place` in a list of at most a few, added to it if it is not there.
template <class List>
params::VersionVector& find_or_add(List& list, int place, int ranks) {
  for (auto& entry : list) {
    if (entry.place == place) return entry.updates;
  }
  list.push_back({place, params::VersionVector(ranks)});
  return list.back().updates;
}

}  // namespace

void Account::check(const params::UpdateId& id) const {
  STARLING_CHECK(id.origin >= 0 && id.origin < ranks_ && id.number >= 1,
                 fmt::format("rank {} enters update {} of rank {} in a ledger of {} ranks", rank_, id.number, id.origin, ranks_));
}

params::UpdateId Account::produced() {
  STARLING_CHECK(addressed_.empty(), fmt::format("rank {} has sent updates to some ranks, and now one to all", rank_));
  return {.origin = rank_, .number = ++produced_};
}

params::UpdateId Account::produced_for(std::span<const int> places) {
  STARLING_CHECK(!places.empty(), fmt::format("rank {} makes an update that is meant for nobody", rank_));
  STARLING_CHECK(produced_ == 0 || !addressed_.empty(), fmt::format("rank {} has sent updates to all, and now one to some ranks", rank_));
  ++produced_;
  for (const int place : places) {
    STARLING_CHECK(addressed_[place].insert(produced_), fmt::format("rank {} addresses an update twice to rank {}", rank_, place));
  }
  return {.origin = rank_, .number = produced_};
}

void Account::dropped(const params::UpdateId& id, const std::string& reason) {
  check(id);
  for (const auto& [other, updates] : dropped_) {
    if (updates[id.origin].contains(id.number)) return;
  }
  dropped_.try_emplace(reason, ranks_).first->second[id.origin].insert(id.number);
}

void Account::enter(int place, const params::UpdateId& id) {
  check(id);
  if (find_or_add(applied_, place, ranks_)[id.origin].insert(id.number)) return;
  find_or_add(applied_twice_, place, ranks_)[id.origin].insert(id.number);
}

void Account::applied(const params::Stamp& stamp, std::uint64_t version, const params::VersionVector& contents) {
  applied_at(rank_, stamp, version, contents);
}

void Account::applied_fresh(const params::UpdateId& id) {
  enter(rank_, id);
  version_staleness_.add(0);
  set_staleness_.add(0);
  show(0);
}

void Account::applied_at(int place, const params::Stamp& stamp, std::uint64_t version, const params::VersionVector& contents) {
  STARLING_CHECK(place >= 0 && place < ranks_, fmt::format("rank {} applies an update at rank {} of {}", rank_, place, ranks_));
  // First, because `contents` may be what is entered into.
  const std::uint64_t staleness = version - std::min(version, stamp.version);
  version_staleness_.add(staleness);
  show(staleness);
  set_staleness_.add(distance(stamp.contents, contents));
  enter(place, stamp.id);
}

void Account::applied_in_order(int place, const params::UpdateId& id, std::uint64_t read, std::uint64_t version) {
  STARLING_CHECK(place >= 0 && place < ranks_, fmt::format("rank {} applies an update at rank {} of {}", rank_, place, ranks_));
  STARLING_CHECK(read <= version, fmt::format("rank {} has read version {} before version {}", rank_, read, version));
  version_staleness_.add(version - read);
  show(version - read);
  set_staleness_.add(version - read);
  enter(place, id);
}

void Account::applied_measured(const params::UpdateId& id, std::uint64_t version_staleness, std::uint64_t set_staleness) {
  version_staleness_.add(version_staleness);
  show(version_staleness);
  set_staleness_.add(set_staleness);
  enter(rank_, id);
}

void Account::show(std::uint64_t staleness) {
  std::atomic_ref(live_applications_).store(live_applications_ + 1, std::memory_order_relaxed);
  if (staleness > 0) std::atomic_ref(live_staleness_).store(live_staleness_ + staleness, std::memory_order_relaxed);
}

std::uint64_t Account::live_applications() const { return std::atomic_ref(live_applications_).load(std::memory_order_relaxed); }

std::uint64_t Account::live_staleness() const { return std::atomic_ref(live_staleness_).load(std::memory_order_relaxed); }

void Account::show_live(std::uint64_t applications, std::uint64_t staleness) {
  std::atomic_ref(live_applications_).store(applications, std::memory_order_relaxed);
  std::atomic_ref(live_staleness_).store(staleness, std::memory_order_relaxed);
}

const params::VersionVector& Account::contents() { return find_or_add(applied_, rank_, ranks_); }

Ledger::Ledger(int ranks, int workers, std::vector<int> places) : workers_(workers), places_(std::move(places)) {
  STARLING_CHECK(workers >= 1 && workers <= ranks, fmt::format("a ledger for {} workers on {} ranks", workers, ranks));
  std::sort(places_.begin(), places_.end());
  STARLING_CHECK(!places_.empty() && places_.front() >= 0 && places_.back() < ranks, "the places of a ledger are ranks, at least one");
  STARLING_CHECK(std::adjacent_find(places_.begin(), places_.end()) == places_.end(), "the places of a ledger differ");
  accounts_.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) accounts_.push_back(Account(rank, ranks));
}

Ledger::~Ledger() = default;

Account& Ledger::account(int rank) {
  STARLING_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < accounts_.size(), fmt::format("there is no account of rank {}", rank));
  return accounts_[static_cast<std::size_t>(rank)];
}

bool Ledger::was_applied(int place, const params::UpdateId& id) const {
  return std::any_of(accounts_.begin(), accounts_.end(), [&](const Account& one) {
    return std::any_of(one.applied_.begin(), one.applied_.end(), [&](const Account::Applied& applied) {
      return applied.place == place && applied.updates[id.origin].contains(id.number);
    });
  });
}

void Ledger::write_off(const std::vector<int>& lost) {
  const auto is_lost = [&](int rank) { return std::find(lost.begin(), lost.end(), rank) != lost.end(); };
  for (Account& own : accounts_) {
    const int origin = own.rank_;
    // Of a rank that is there, only what a lost one should have got.
    std::vector<int> places;
    std::copy_if(places_.begin(), places_.end(), std::back_inserter(places), [&](int place) { return is_lost(origin) || is_lost(place); });
    for (const int place : places) {
      const params::NumberSet meant = meant_for(place, own);
      for (const params::NumberSet::Range& range : meant.ranges()) {
        for (std::uint64_t number = range.first; number <= range.last; ++number) {
          const params::UpdateId id{.origin = origin, .number = number};
          if (was_applied(place, id)) continue;
          // A place that is lost drops what was meant for it, and speaks for itself alone.
          if (is_lost(origin)) {
            own.dropped(id, kSenderLost);
          } else {
            account(place).dropped(id, kReceiverLost);
          }
        }
      }
    }
  }
}

params::NumberSet Ledger::meant_for(int place, const Account& origin) const {
  if (origin.addressed_.empty()) return params::NumberSet(origin.produced_);
  const auto found = origin.addressed_.find(place);
  return found == origin.addressed_.end() ? params::NumberSet() : found->second;
}

bool Ledger::is_place(int rank) const { return std::binary_search(places_.begin(), places_.end(), rank); }

}  // namespace starling::ledger
