// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/threads/shared_all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "starling/base/floats.h"
#include "starling/fabric/threads/world.h"

namespace starling::fabric::threads {

SharedAllReduce::SharedAllReduce(Group group, World& world)
    : group_(std::move(group)), world_(world), members_(static_cast<std::size_t>(group_.size())) {}

Status SharedAllReduce::reduce(int index, std::span<float> values, Deadline deadline) {
  Member& me = members_[static_cast<std::size_t>(index)];
  const std::uint64_t round = me.round.load(std::memory_order_relaxed);
  Shown& mine = me.shown[round % 2];
  mine.values = values.data();
  mine.size = values.size();
  const bool is_short = values.size() <= kShort;
  if (is_short) std::copy(values.begin(), values.end(), mine.copy.begin());

  me.round.store(round + 1, std::memory_order_relaxed);
  STARLING_TRY(meet(index, round, deadline));
  if (sizes_differ(round)) {
    return Failure{FailureKind::mismatch,
                   group_[index],
                   -1,
                   "an all-reduce",
                   Duration::zero(),
                   fmt::format("the members give vectors of different length, this one {} floats", values.size())};
  }
  if (is_short) {
    add_short(values, round);
    return {};
  }
  add_slice(index, values.size(), round);

  // The others still write to `values`, so this wait cannot be left early. It needs no deadline: all members are past the meeting, and
  // between there and here they do nothing but add.
  const std::uint64_t all = ++me.long_rounds * members_.size();
  if (done_.fetch_add(1) + 1 == all) {
    changed_.wake();
  } else {
    changed_.wait_until([&] { return done_.load() >= all; }, world_.real_time(kEndOfTime), world_.spin());
  }
  return {};
}

Status SharedAllReduce::meet(int index, std::uint64_t round, Deadline deadline) {
  const std::uint64_t all = (round + 1) * members_.size();
  // A broken site counts nobody any more, so that a count that was reached before the break stays the proof of a complete round.
  std::uint64_t before = arrived_.load();
  do {
    if ((before & kBroken) != 0) return broken(index, world_.now());
  } while (!arrived_.compare_exchange_weak(before, before + 1));
  if (before + 1 == all) {
    changed_.wake();
    return {};
  }
  const Time begin = world_.now();
  const auto limit = world_.real_time(deadline.resolve(begin, world_.options().timeout));
  for (;;) {
    const std::size_t departures = world_.departure_count();
    Rank gone = kAnyRank;
    if (departures > 0) {
      for (const Rank member : group_.members()) {
        if (world_.state(member) != PeerState::alive) gone = member;
      }
    }
    if (gone == kAnyRank) {
      const auto changed = [&] { return arrived_.load() >= all || world_.departure_count() != departures; };
      if (!changed_.wait_until(changed, limit, world_.spin())) {
        return give_up(index, round, {FailureKind::timeout, group_[index], -1, "all members of an all-reduce", world_.now() - begin, ""});
      }
      const std::uint64_t arrived = arrived_.load();
      if ((arrived & ~kBroken) >= all) return {};
      if ((arrived & kBroken) != 0) return broken(index, begin);
      continue;  // Only a departure, perhaps of a rank outside the group.
    }
    return give_up(
        index, round,
        {FailureKind::peer_lost, group_[index], gone, fmt::format("rank {} in an all-reduce", gone), world_.now() - begin, "it is gone"});
  }
}

// Leaving is only possible while the round has not begun: from then on the others use this member's vector.
Status SharedAllReduce::give_up(int index, std::uint64_t round, Failure failure) {
  const std::uint64_t all = (round + 1) * members_.size();
  std::uint64_t arrived = arrived_.load();
  do {
    if ((arrived & ~kBroken) >= all) return {};
    if ((arrived & kBroken) != 0) return broken(index, world_.now() - failure.waited);
    Rank nobody = kAnyRank;
    gave_up_.compare_exchange_strong(nobody, group_[index]);
  } while (!arrived_.compare_exchange_weak(arrived, arrived | kBroken));
  changed_.wake();
  if (failure.kind == FailureKind::timeout) {
    std::vector<Rank> missing;
    for (int i = 0; i < group_.size(); ++i) {
      if (members_[static_cast<std::size_t>(i)].round.load(std::memory_order_relaxed) <= round) missing.push_back(group_[i]);
    }
    failure.detail = fmt::format("{} of {} did not come: rank {}", missing.size(), group_.size(), fmt::join(missing, ", "));
    if (!missing.empty()) failure.peer = missing.front();
  }
  return failure;
}

Failure SharedAllReduce::broken(int index, Time begin) const {
  const Rank culprit = gave_up_.load();
  return {FailureKind::peer_lost,
          group_[index],
          culprit,
          "all members of an all-reduce",
          world_.now() - begin,
          fmt::format("rank {} gave up; form a group with a new context to go on", culprit)};
}

bool SharedAllReduce::sizes_differ(std::uint64_t round) const {
  for (int i = 1; i < group_.size(); ++i) {
    if (shown(i, round).size != shown(0, round).size) return true;
  }
  return false;
}

void SharedAllReduce::add_short(std::span<float> values, std::uint64_t round) const {
  std::copy_n(shown(0, round).copy.begin(), values.size(), values.begin());
  for (int i = 1; i < group_.size(); ++i) add_floats(values, std::span(shown(i, round).copy).first(values.size()));
}

void SharedAllReduce::add_slice(int index, std::size_t size, std::uint64_t round) const {
  constexpr std::size_t kLine = 16;  // Floats in a cache line: no two members write to the same one.
  const auto members = static_cast<std::size_t>(group_.size());
  const auto boundary = [&](std::size_t i) { return i == members ? size : std::min(size, size * i / members / kLine * kLine); };
  const std::size_t begin = boundary(static_cast<std::size_t>(index));
  const std::size_t end = boundary(static_cast<std::size_t>(index) + 1);
  if (members == 2) {
    add_floats_to_both({shown(0, round).values + begin, end - begin}, {shown(1, round).values + begin, end - begin});
    return;
  }
  std::array<float, 1024> sum;
  for (std::size_t at = begin; at < end; at += sum.size()) {
    const std::size_t count = std::min(sum.size(), end - at);
    std::memcpy(sum.data(), shown(0, round).values + at, count * sizeof(float));
    for (int i = 1; i < group_.size(); ++i) add_floats({sum.data(), count}, {shown(i, round).values + at, count});
    for (int i = 0; i < group_.size(); ++i) std::memcpy(shown(i, round).values + at, sum.data(), count * sizeof(float));
  }
}

}  // namespace starling::fabric::threads
