// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The books as text, for checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "starling/base/error.h"
#include "starling/ledger/ledger.h"

namespace starling::ledger {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kFormat = 1;

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(fmt::format("the ledger of a checkpoint cannot be read: {}. Take another checkpoint, or start anew.", what));
}

// The beginning of what is wrong, for a message.
std::string shown(const Json& json) {
  constexpr std::size_t kMostBytes = 60;
  const std::string text = json.dump(-1, ' ', true);
  return text.size() <= kMostBytes ? text : fmt::format("{}…", text.substr(0, kMostBytes));
}

// The library would turn -1 and 2.5 into whole numbers without a word.
std::uint64_t whole_number(const Json& json) {
  if (!json.is_number_unsigned()) refuse(fmt::format("{} is no whole number", shown(json)));
  return json.get<std::uint64_t>();
}

const Json& list(const Json& json) {
  if (!json.is_array()) refuse(fmt::format("{} is no list", shown(json)));
  return json;
}

Json to_json(const Histogram& histogram) {
  Json entries = Json::array();
  const auto values = histogram.entries();
  for (const auto& [value, times] : values) entries.push_back({value, times});
  return entries;
}

Histogram histogram_from(const Json& json) {
  Histogram histogram;
  for (const Json& entry : list(json)) {
    if (!entry.is_array() || entry.size() != 2) refuse(fmt::format("{} is not a value and how often it occurred", shown(entry)));
    const std::uint64_t times = whole_number(entry[1]);
    if (times > std::numeric_limits<std::uint64_t>::max() - histogram.count()) refuse("it counts more than can be counted");
    histogram.add(whole_number(entry[0]), times);
  }
  return histogram;
}

Json to_json(const params::VersionVector& updates) {
  std::vector<std::uint64_t> words;
  updates.write(words);
  return words;
}

params::VersionVector updates_from(const Json& json, int ranks) {
  std::vector<std::uint64_t> words;
  for (const Json& word : list(json)) words.push_back(whole_number(word));
  std::span<const std::uint64_t> rest(words);
  std::optional<params::VersionVector> updates = params::VersionVector::read(rest);
  if (!updates || !rest.empty() || updates->origins() != ranks)
    refuse(fmt::format("{} is no set of updates of {} ranks", shown(json), ranks));
  return std::move(*updates);
}

template <class List>
Json by_place(const List& entries) {
  Json json = Json::array();
  for (const auto& entry : entries) json.push_back({{"place", entry.place}, {"updates", to_json(entry.updates)}});
  return json;
}

template <class List>
List by_place_from(const Json& json, int ranks) {
  List entries;
  for (const Json& entry : list(json)) {
    const std::uint64_t place = whole_number(entry.at("place"));
    if (place >= static_cast<std::uint64_t>(ranks)) refuse(fmt::format("there is no place {} among {} ranks", place, ranks));
    entries.push_back({static_cast<int>(place), updates_from(entry.at("updates"), ranks)});
  }
  return entries;
}

Json by_place(const std::map<int, params::NumberSet>& entries) {
  Json json = Json::array();
  for (const auto& [place, set] : entries) {
    params::VersionVector updates(1);
    updates[0] = set;
    json.push_back({{"place", place}, {"updates", to_json(updates)}});
  }
  return json;
}

std::map<int, params::NumberSet> addressed_from(const Json& json, int ranks) {
  std::map<int, params::NumberSet> entries;
  for (const Json& entry : list(json)) {
    const std::uint64_t place = whole_number(entry.at("place"));
    if (place >= static_cast<std::uint64_t>(ranks)) refuse(fmt::format("there is no place {} among {} ranks", place, ranks));
    entries[static_cast<int>(place)] = updates_from(entry.at("updates"), 1)[0];
  }
  return entries;
}

Json to_json(const TimeUse& time) {
  return {{"compute_ns", time.compute.count()}, {"waiting_ns", time.waiting.count()}, {"communication_ns", time.communication.count()}};
}

Duration duration_from(const Json& json) {
  if (!json.is_number_integer() ||
      (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(kEndOfTime.count()))) {
    refuse(fmt::format("{} is no time in nanoseconds", shown(json)));
  }
  return Duration(json.get<Duration::rep>());
}

}  // namespace

// Has access to what an account holds.
struct Ledger::AccountFile {
  static Json to_json(const Account& account) {
    Json dropped = Json::object();
    for (const auto& [reason, updates] : account.dropped_) dropped[reason] = ledger::to_json(updates);
    return {{"produced", account.produced_},
            {"addressed", by_place(account.addressed_)},
            {"applied", by_place(account.applied_)},
            {"applied_twice", by_place(account.applied_twice_)},
            {"dropped", std::move(dropped)},
            {"version_staleness", ledger::to_json(account.version_staleness_)},
            {"set_staleness", ledger::to_json(account.set_staleness_)},
            {"skew", ledger::to_json(account.skew_)},
            {"time", ledger::to_json(account.time_)},
            {"bytes_sent", account.bytes_sent_},
            {"steps", account.steps_}};
  }

  static Account from_json(const Json& entry, int rank, int ranks) {
    Account account(rank, ranks);
    account.produced_ = whole_number(entry.at("produced"));
    account.addressed_ = addressed_from(entry.value("addressed", Json::array()), ranks);
    account.applied_ = by_place_from<std::vector<Account::Applied>>(entry.at("applied"), ranks);
    account.applied_twice_ = by_place_from<std::vector<Account::Applied>>(entry.at("applied_twice"), ranks);
    for (const auto& [reason, updates] : entry.at("dropped").items()) account.dropped_.emplace(reason, updates_from(updates, ranks));
    account.version_staleness_ = histogram_from(entry.at("version_staleness"));
    account.set_staleness_ = histogram_from(entry.at("set_staleness"));
    account.skew_ = histogram_from(entry.at("skew"));
    const Json& time = entry.at("time");
    account.time_ = {duration_from(time.at("compute_ns")), duration_from(time.at("waiting_ns")),
                     duration_from(time.at("communication_ns"))};
    account.bytes_sent_ = whole_number(entry.at("bytes_sent"));
    account.steps_ = whole_number(entry.at("steps"));
    for (const auto& [staleness, times] : account.version_staleness_.entries()) {
      account.live_applications_ += times;
      account.live_staleness_ += times * staleness;
    }
    return account;
  }
};

// Totals of earlier books, as far as they are carried on.
struct Ledger::CarriedFile {
  static Json to_json(const Balance& carried) {
    return {{"balanced", carried.balanced},
            {"errors", carried.errors},
            {"produced", carried.produced},
            {"applied", carried.applied},
            {"dropped", carried.dropped},
            {"version_staleness", ledger::to_json(carried.version_staleness)},
            {"set_staleness", ledger::to_json(carried.set_staleness)},
            {"skew", ledger::to_json(carried.skew)},
            {"bytes_sent", carried.bytes_sent}};
  }

  static Balance from_json(const Json& json) {
    Balance carried;
    carried.balanced = json.at("balanced").get<bool>();
    carried.errors = json.at("errors").get<std::vector<std::string>>();
    carried.produced = whole_number(json.at("produced"));
    carried.applied = whole_number(json.at("applied"));
    for (const auto& [reason, times] : json.at("dropped").items()) carried.dropped[reason] = whole_number(times);
    carried.version_staleness = histogram_from(json.at("version_staleness"));
    carried.set_staleness = histogram_from(json.at("set_staleness"));
    carried.skew = histogram_from(json.at("skew"));
    carried.bytes_sent = whole_number(json.at("bytes_sent"));
    return carried;
  }
};

void Ledger::carry(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    const auto ranks = static_cast<int>(list(json.at("accounts")).size());
    const auto workers = json.at("workers").get<int>();
    const auto places = json.at("places").get<std::vector<int>>();
    const bool fits = std::all_of(places.begin(), places.end(), [&](int place) { return place >= 0 && place < ranks; });
    if (workers < 1 || workers > ranks || places.empty() || !fits) refuse("its ranks, workers and places do not fit together");
    Ledger before(ranks, workers, places);
    before.restore(text);
    carried_ = before.close({});
  } catch (const Json::exception& error) {
    refuse(error.what());
  }
  carried_.time.clear();
  carried_.steps.clear();
  carried_.straggler.reset();
}

std::string Ledger::save() const {
  Json accounts = Json::array();
  for (const Account& account : accounts_) accounts.push_back(AccountFile::to_json(account));
  Json json{{"format", kFormat}, {"workers", workers_}, {"places", places_}, {"accounts", std::move(accounts)}};
  if (carried_.produced > 0 || carried_.bytes_sent > 0) json["carried"] = CarriedFile::to_json(carried_);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Ledger::restore(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (const std::uint64_t format = whole_number(json.at("format")); format != kFormat) {
      refuse(fmt::format("it is of format {}, this program knows {}", format, kFormat));
    }
    const Json& accounts = list(json.at("accounts"));
    if (accounts.size() != accounts_.size() || json.at("workers") != Json(workers_) || json.at("places") != Json(places_)) {
      refuse(fmt::format(
          "it is of {} ranks, {} of them workers, with updates applied at {}; this run has {} ranks, {} of them workers, "
          "with updates applied at {}",
          accounts.size(), shown(json.at("workers")), shown(json.at("places")), accounts_.size(), workers_, shown(Json(places_))));
    }
    const int ranks = static_cast<int>(accounts_.size());
    std::vector<Account> restored;
    restored.reserve(accounts.size());
    for (int rank = 0; rank < ranks; ++rank)
      restored.push_back(AccountFile::from_json(accounts[static_cast<std::size_t>(rank)], rank, ranks));
    carried_ = json.contains("carried") ? CarriedFile::from_json(json.at("carried")) : Balance{};
    // One by one: others hold references to the accounts.
    for (std::size_t rank = 0; rank < accounts_.size(); ++rank) accounts_[rank] = std::move(restored[rank]);
  } catch (const Json::exception& error) {
    refuse(error.what());
  }
}

std::string Ledger::save_account(int rank) const {
  return AccountFile::to_json(accounts_[static_cast<std::size_t>(rank)]).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Ledger::restore_account(int rank, const std::string& text) {
  try {
    account(rank) = AccountFile::from_json(Json::parse(text), rank, static_cast<int>(accounts_.size()));
  } catch (const Json::exception& error) {
    refuse(error.what());
  }
}

}  // namespace starling::ledger
