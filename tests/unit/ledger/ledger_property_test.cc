// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Random runs, sound and unsound, entered in a ledger and in a model of it that keeps every update by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "starling/base/random.h"
#include "starling/ledger/ledger.h"

namespace starling::ledger {
namespace {

using params::UpdateId;
using params::VersionVector;
using Update = std::pair<int, std::uint64_t>;
using Updates = std::set<Update>;

struct Model {
  int ranks = 1;
  std::vector<int> places{};
  std::vector<std::uint64_t> produced{};
  std::vector<std::multiset<Update>> applied{};          // By place.
  std::vector<std::map<Update, std::string>> dropped{};  // By who dropped it.

  bool is_place(int rank) const { return std::find(places.begin(), places.end(), rank) != places.end(); }
};

struct Expected {
  std::uint64_t produced = 0;
  std::uint64_t applied = 0;
  std::map<std::string, std::uint64_t> dropped{};
  std::uint64_t errors = 0;
};

// What is to be said of one update, by looking at it alone.
void judge(const Model& model, const Update& update, const std::set<int>& lost, Expected& expected) {
  const bool produced = update.second <= model.produced[static_cast<std::size_t>(update.first)];
  std::map<int, std::string> drops;
  bool dropped_for_all = false;
  for (int rank = 0; rank < model.ranks; ++rank) {
    const auto found = model.dropped[static_cast<std::size_t>(rank)].find(update);
    if (found == model.dropped[static_cast<std::size_t>(rank)].end()) continue;
    drops[rank] = found->second;
    if (rank == update.first || !model.is_place(rank)) dropped_for_all = true;
  }
  bool everywhere = true;
  bool unexplained = false;
  for (int rank = 0; rank < model.ranks; ++rank) {
    const std::size_t times = model.applied[static_cast<std::size_t>(rank)].count(update);
    if (times > 1) ++expected.errors;
    if (times > 0 && !produced) ++expected.errors;
    if (times > 0 && !model.is_place(rank)) ++expected.errors;
    if (!model.is_place(rank)) continue;
    if (times > 0 && rank != update.first && drops.contains(rank)) ++expected.errors;
    if (times > 0) continue;
    everywhere = false;
    if (produced && !dropped_for_all && !drops.contains(rank) && !lost.contains(update.first) && !lost.contains(rank)) {
      ++expected.errors;
      unexplained = true;
    }
  }
  for (const auto& [rank, reason] : drops) {
    if (!produced) ++expected.errors;
    if (produced && everywhere && (rank == update.first || !model.is_place(rank))) ++expected.errors;
  }
  if (!produced) return;
  ++expected.produced;
  if (everywhere) ++expected.applied;
  if (everywhere || unexplained) return;
  std::string reason = lost.contains(update.first) ? kSenderLost : kReceiverLost;
  if (!drops.empty()) reason = drops.contains(update.first) ? drops[update.first] : drops.begin()->second;
  ++expected.dropped[reason];
}

Expected judge_all(const Model& model, const std::set<int>& lost) {
  Updates all;
  for (int rank = 0; rank < model.ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    for (std::uint64_t number = 1; number <= model.produced[index]; ++number) all.insert({rank, number});
    for (const Update& update : model.applied[index]) all.insert(update);
    for (const auto& [update, reason] : model.dropped[index]) all.insert(update);
  }
  Expected expected;
  for (const Update& update : all) judge(model, update, lost, expected);
  return expected;
}

std::uint64_t symmetric_difference(const Updates& a, const Updates& b) {
  Updates difference;
  std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(difference, difference.end()));
  return difference.size();
}

// One run. Every update goes to every place with a delay of its own, carries what its origin had seen, and may meet with accidents.
class RandomRun {
 public:
  RandomRun(std::uint64_t seed, double accidents) : random_(seed, 0, "run"), accidents_(accidents) {
    model_.ranks = 1 + static_cast<int>(random_.below(6));
    const int workers = 1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(model_.ranks)));
    for (int rank = 0; rank < model_.ranks; ++rank) {
      if (random_.below(2) == 0) model_.places.push_back(rank);
    }
    if (model_.places.empty()) model_.places.push_back(model_.ranks - 1);
    const auto ranks = static_cast<std::size_t>(model_.ranks);
    model_.produced.resize(ranks);
    model_.applied.resize(ranks);
    model_.dropped.resize(ranks);
    seen_.resize(ranks);
    seen_vectors_.assign(ranks, VersionVector(model_.ranks));
    ledger_.emplace(model_.ranks, workers, model_.places);
    for (std::uint64_t event = 0; event < 5 + random_.below(60); ++event) {
      if (random_.below(3) == 0) {
        produce(static_cast<int>(random_.below(static_cast<std::uint64_t>(workers))));
      } else {
        deliver();
      }
    }
    while (!under_way_.empty()) deliver();
  }

  const Model& model() const { return model_; }
  Ledger& ledger() { return *ledger_; }
  const std::vector<std::uint64_t>& set_staleness() const { return set_staleness_; }
  const std::vector<std::uint64_t>& version_staleness() const { return version_staleness_; }

 private:
  struct Message {
    params::Stamp stamp{};
    Updates contents{};
    int place = 0;
  };

  bool accident() { return random_.uniform() < accidents_; }
  int any_rank() { return static_cast<int>(random_.below(static_cast<std::uint64_t>(model_.ranks))); }

  void produce(int worker) {
    const auto index = static_cast<std::size_t>(worker);
    // The worker looks at the weights of some place first.
    const auto source = static_cast<std::size_t>(model_.places[random_.below(model_.places.size())]);
    seen_[index] = seen_[source];
    seen_vectors_[index] = seen_vectors_[source];
    UpdateId id = ledger_->account(worker).produced();
    EXPECT_EQ(id.number, ++model_.produced[index]);
    if (accident()) id.number += 1 + random_.below(3);  // One that does not exist, or not yet.
    if (accident()) drop(random_.below(2) == 0 ? worker : any_rank(), id);
    for (const int place : model_.places) {
      if (accident()) continue;
      under_way_.push_back({{.id = id, .version = seen_[index].size(), .contents = seen_vectors_[index]}, seen_[index], place});
      if (accident()) under_way_.push_back(under_way_.back());
    }
  }

  void drop(int rank, const UpdateId& id) {
    const std::string reason = random_.below(2) == 0 ? kNotFinite : "too old";
    ledger_->account(rank).dropped(id, reason);
    model_.dropped[static_cast<std::size_t>(rank)].try_emplace({id.origin, id.number}, reason);
  }

  void deliver() {
    if (under_way_.empty()) return;
    const std::size_t position = random_.below(under_way_.size());
    Message message = under_way_[position];
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(position));
    if (accident()) {
      drop(message.place, message.stamp.id);
      if (random_.below(4) != 0) return;
    }
    if (accident()) message.place = any_rank();
    const auto index = static_cast<std::size_t>(message.place);
    const Update update{message.stamp.id.origin, message.stamp.id.number};
    const std::uint64_t version = seen_[index].size();
    const int by = random_.below(4) == 0 ? any_rank() : message.place;
    ledger_->account(by).applied_at(message.place, message.stamp, version, seen_vectors_[index]);
    set_staleness_.push_back(symmetric_difference(message.contents, seen_[index]));
    version_staleness_.push_back(version > message.stamp.version ? version - message.stamp.version : 0);
    model_.applied[index].insert(update);
    seen_[index].insert(update);
    seen_vectors_[index][update.first].insert(update.second);
  }

  RandomStream random_;
  double accidents_;
  Model model_{};
  std::optional<Ledger> ledger_{};
  std::vector<Updates> seen_{};                // By rank: what its weights contain.
  std::vector<VersionVector> seen_vectors_{};  // The same.
  std::vector<Message> under_way_{};
  std::vector<std::uint64_t> set_staleness_{};
  std::vector<std::uint64_t> version_staleness_{};
};

Histogram histogram_of(const std::vector<std::uint64_t>& values) {
  Histogram histogram;
  for (const std::uint64_t value : values) histogram.add(value);
  return histogram;
}

void compare(RandomRun& run, const std::vector<int>& lost) {
  const Expected expected = judge_all(run.model(), {lost.begin(), lost.end()});
  const Balance balance = run.ledger().close(lost);
  EXPECT_EQ(balance.produced, expected.produced);
  EXPECT_EQ(balance.applied, expected.applied);
  EXPECT_EQ(balance.dropped, expected.dropped);
  EXPECT_EQ(balance.balanced, expected.errors == 0);
  // The ledger says "twice" once for an account and once more if another applied it too.
  EXPECT_EQ(balance.errors.empty(), expected.errors == 0);
  EXPECT_GE(balance.errors.size(), std::min<std::uint64_t>(expected.errors, 10));
  EXPECT_LE(balance.errors.size(), 10U);
  EXPECT_EQ(balance.set_staleness, histogram_of(run.set_staleness()));
  EXPECT_EQ(balance.version_staleness, histogram_of(run.version_staleness()));
  Ledger copy = run.ledger();
  copy.restore(run.ledger().save());
  EXPECT_EQ(copy.save(), run.ledger().save());
}

TEST(LedgerProperty, SoundRunsBalanceAndStalenessIsExact) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(seed, 0);
    compare(run, {});
    const Balance balance = run.ledger().close({});
    EXPECT_TRUE(balance.balanced);
    EXPECT_EQ(balance.applied, balance.produced);
    if (HasFailure()) return;
  }
}

TEST(LedgerProperty, AccidentsAreSeenAsTheModelSeesThem) {
  int unbalanced = 0;
  constexpr int kRuns = 2000;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(seed, seed % 2 == 0 ? 0.02 : 0.2);
    RandomStream random(seed, 0, "lost");
    std::vector<int> lost;
    for (int rank = 0; rank < run.model().ranks; ++rank) {
      if (random.below(3) == 0) lost.push_back(rank);
    }
    compare(run, {});
    compare(run, lost);
    unbalanced += run.ledger().close(lost).balanced ? 0 : 1;
    if (HasFailure()) return;
  }
  // Both kinds occur often, or nothing was tested.
  EXPECT_GT(unbalanced, kRuns / 10);
  EXPECT_LT(unbalanced, kRuns * 9 / 10);
}

}  // namespace
}  // namespace starling::ledger
