// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/host_all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/floats.h"

namespace starling::fabric::mpi {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kShort = 512;      // In floats: up to here one meeting and the whole vector cost less than two.
constexpr std::size_t kLine = 16;        // Floats in a cache line.
constexpr std::size_t kQueueNeeded = 8;  // Messages that may be under way between two hosts in one direction,
constexpr std::size_t kMostPieceBytes = HostMemory::kBufferFloats / 2 * sizeof(float) + sizeof(std::uint64_t);  // and how large they are.

std::uint64_t key_of(const Group& group) {
  std::uint64_t key = 0xcbf29ce484222325;
  const auto mix = [&](std::uint64_t value) { key = (key ^ value) * 0x100000001b3; };
  mix(group.context());
  for (const Rank member : group.members()) mix(static_cast<std::uint64_t>(member) + 1);
  return key | 1U;
}

void copy_floats(std::span<float> to, std::span<const float> from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size_bytes());
}

}  // namespace

std::optional<Status> HostAllReduce::reduce(Endpoint& endpoint, const Group& group, std::span<float> values, Deadline deadline) {
  const std::size_t number = number_of(group);
  Place& place = places_[number];
  if (!place.open) return std::nullopt;
  if (auto failure = leave_last_place(number, deadline)) {
    break_site(place);
    return *failure;
  }
  SiteMember& me = shown(place, static_cast<std::size_t>(place.index));
  me.floats[place.reductions % 2] = values.size();
  me.rounds.store(place.reductions + 1, std::memory_order_relaxed);
  Status status = place.hosts == 1 ? reduce_here(place, values, deadline) : reduce_between(endpoint, place, values, deadline);
  // The others of this host cannot know what went wrong on the way to another.
  if (!status && place.hosts > 1) break_site(place);
  me.left.store(++place.reductions);
  return status;
}

std::size_t HostAllReduce::number_of(const Group& group) {
  if (last_ < places_.size() && places_[last_].group == group) return last_;
  std::size_t number = 0;
  while (number < places_.size() && places_[number].group != group) ++number;
  if (number == places_.size()) places_.push_back(find_place(group));
  return number;
}

// What this rank showed at the last place must have been read before it shows something else.
std::optional<Failure> HostAllReduce::leave_last_place(std::size_t number, Deadline deadline) {
  if (number == last_) return std::nullopt;
  const Place& last = places_[last_];
  const Time begin = world_.now();
  const Time limit = deadline.resolve(begin, world_.options().timeout);
  for (std::size_t i = 0; last.open && i < last.count(); ++i) {
    while (may_still_read(last, i)) {
      if (world_.now() >= limit) {
        const Rank reader = world_.members().here[static_cast<std::size_t>(last.members[i])];
        return Failure{FailureKind::timeout,
                       world_.rank(),
                       reader,
                       fmt::format("rank {} to leave another all-reduce", reader),
                       world_.now() - begin,
                       ""};
      }
      std::this_thread::yield();
    }
  }
  last_ = number;
  return std::nullopt;
}

// Who is inside goes on by itself: a complete meeting needs nobody any more, and a broken one lets everybody go. Who is not inside has left
// all that were complete, and a site that is broken has no more of them.
bool HostAllReduce::may_still_read(const Place& place, std::size_t index) const {
  const SiteMember& member = shown(place, index);
  const std::uint64_t left = member.left.load();
  if (left >= place.reductions || left == member.rounds.load()) return false;
  const World::Lock lock = world_.lock();
  return world_.state(world_.members().here[static_cast<std::size_t>(place.members[index])]) == PeerState::alive;
}

HostAllReduce::Place HostAllReduce::find_place(const Group& group) const {
  const Members& members = world_.members();
  Place place{.group = group};
  std::vector<Rank> hosts;
  std::vector<Rank> firsts;
  std::size_t own = 0;
  for (const Rank member : group.members()) {
    const Rank host = members.host_of[static_cast<std::size_t>(member)];
    if (hosts.empty() || hosts.back() != host) {
      if (std::find(hosts.begin(), hosts.end(), host) != hosts.end()) return place;  // Its ranks do not follow each other.
      hosts.push_back(host);
      firsts.push_back(member);
    }
    if (!members.is_here(member)) continue;
    own = hosts.size() - 1;
    if (member == world_.rank()) place.index = static_cast<int>(place.count());
    place.members.push_back(members.number_here[static_cast<std::size_t>(member)]);
  }
  const FabricOptions& options = world_.options();
  if (hosts.size() > 1 && (options.queue_messages < kQueueNeeded || options.queue_bytes < kQueueNeeded * kMostPieceBytes)) return place;
  if (own > 0) place.before = firsts[own - 1];
  if (own + 1 < hosts.size()) place.after = firsts[own + 1];
  place.hosts = static_cast<int>(hosts.size());
  place.hosts_after = static_cast<int>(hosts.size() - 1 - own);
  const std::optional<std::size_t> claimed = claim_site(group);
  if (!claimed && place.hosts > 1) {
    throw UserError(
        fmt::format("in one run there can be {} groups with an all-reduce on a host, and this is one more between hosts: use groups "
                    "again instead of new ones, or choose another algorithm than 'automatic'",
                    HostMemory::kSites));
  }
  place.site = claimed.value_or(0);
  place.open = claimed.has_value();
  return place;
}

// All members on a host find the same place: once there is none left, nobody finds one.
std::optional<std::size_t> HostAllReduce::claim_site(const Group& group) const {
  const std::uint64_t key = key_of(group);
  const std::span<Site> sites = world_.host_memory()->sites();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    std::uint64_t found = 0;
    if (sites[i].key.compare_exchange_strong(found, key) || found == key) return i;
  }
  return std::nullopt;
}

Status HostAllReduce::reduce_here(Place& place, std::span<float> values, Deadline deadline) {
  if (values.size() <= kShort) return reduce_short(place, values, deadline);
  for (std::size_t at = 0; at < values.size(); at += HostMemory::kBufferFloats) {
    STARLING_TRY(reduce_piece(place, values.subspan(at, std::min(HostMemory::kBufferFloats, values.size() - at)), deadline));
  }
  return {};
}

Status HostAllReduce::reduce_short(Place& place, std::span<float> values, Deadline deadline) {
  copy_floats(buffer(place, place.index), values);
  STARLING_TRY(meet(place, deadline));
  if (auto failure = different_sizes(place)) return *failure;
  copy_floats(values, buffer(place, 0).first(values.size()));
  for (int i = 1; i < static_cast<int>(place.count()); ++i) add_floats(values, buffer(place, i).first(values.size()));
  ++place.pieces;
  return {};
}

Status HostAllReduce::reduce_piece(Place& place, std::span<float> values, Deadline deadline) {
  const Part own = part_of(values.size(), place.count(), static_cast<std::size_t>(place.index));
  put_parts_of_others(place, values, own);
  STARLING_TRY(meet(place, deadline));
  if (auto failure = different_sizes(place)) return *failure;
  const bool pair = place.count() == 2;
  if (pair) {
    // The sum of two does not depend on their order. It goes straight to where the other one looks for it.
    const std::size_t size = own.end - own.begin;
    add_floats_to_both(values.subspan(own.begin, size), buffer(place, 1 - place.index).subspan(own.begin, size));
  } else {
    add_in_order(place, values, own, {});
  }
  STARLING_TRY(meet(place, deadline));
  take_parts_of_others(place, values, pair);
  ++place.pieces;
  return {};
}

// No two members write to the same cache line.
HostAllReduce::Part HostAllReduce::part_of(std::size_t size, std::size_t parts, std::size_t index) {
  const auto boundary = [&](std::size_t i) { return i == parts ? size : std::min(size, size * i / parts / kLine * kLine); };
  return {boundary(index), boundary(index + 1)};
}

void HostAllReduce::put_parts_of_others(const Place& place, std::span<const float> values, const Part& own) const {
  const std::span<float> mine = buffer(place, place.index);
  copy_floats(mine, values.first(own.begin));
  copy_floats(mine.subspan(own.end), values.subspan(own.end));
}

// Adds all members' values of this member's own part, to `before` if that is given, into its values and its buffer.
void HostAllReduce::add_in_order(const Place& place, std::span<float> values, const Part& own, std::span<const float> before) const {
  std::array<float, 1024> sum;
  const int count = static_cast<int>(place.count());
  for (std::size_t at = own.begin; at < own.end; at += sum.size()) {
    const std::size_t size = std::min(sum.size(), own.end - at);
    const std::span<float> total(sum.data(), size);
    const auto term = [&](int i) { return i == place.index ? values.subspan(at, size) : buffer(place, i).subspan(at, size); };
    copy_floats(total, before.empty() ? std::span<const float>(term(0)) : before.subspan(at, size));
    for (int i = before.empty() ? 1 : 0; i < count; ++i) add_floats(total, term(i));
    copy_floats(values.subspan(at, size), total);
    copy_floats(buffer(place, place.index).subspan(at, size), total);
  }
}

void HostAllReduce::take_parts_of_others(const Place& place, std::span<float> values, bool from_own_buffer) const {
  for (std::size_t i = 0; i < place.count(); ++i) {
    if (static_cast<int>(i) == place.index) continue;
    const Part part = part_of(values.size(), place.count(), i);
    const std::span<float> from = buffer(place, from_own_buffer ? place.index : static_cast<int>(i));
    copy_floats(values.subspan(part.begin, part.end - part.begin), from.subspan(part.begin, part.end - part.begin));
  }
}

Status HostAllReduce::meet(Place& place, Deadline deadline) {
  if (place.count() == 1) return {};
  Site& here = site(place);
  const std::uint64_t all = ++place.meetings * place.count();
  // A broken site counts nobody any more, so that a count that was reached before the break stays the proof of a complete meeting.
  std::uint64_t before = here.arrived.load();
  do {
    if ((before & Site::kBroken) != 0) return broken(place, world_.now());
  } while (!here.arrived.compare_exchange_weak(before, before + 1));
  if (before + 1 == all) {
    here.changed.ring();
    return {};
  }
  const auto complete = [&] { return (here.arrived.load() & ~Site::kBroken) >= all; };
  const Time begin = world_.now();
  constexpr Duration kSpin = 100us;
  do {
    for (int i = 0; i < 64 && world_.spin(); ++i) {
      if (complete()) return {};
      spin_pause();
    }
  } while (world_.spin() && world_.now() - begin < kSpin);
  const Time limit = deadline.resolve(begin, world_.options().timeout);
  for (;;) {
    const std::uint32_t ticket = here.changed.ticket();
    if (complete()) return {};
    if ((here.arrived.load() & Site::kBroken) != 0) return broken(place, begin);
    const Duration waited = world_.now() - begin;
    if (const Rank gone = gone_member(place); gone != kAnyRank) {
      return give_up(place, all,
                     {FailureKind::peer_lost, world_.rank(), gone, fmt::format("rank {} in an all-reduce", gone), waited, "it is gone"});
    }
    if (world_.now() >= limit) {
      return give_up(place, all, {FailureKind::timeout, world_.rank(), -1, "all members of an all-reduce", waited, ""});
    }
    // The other thread hears of departures; they ring at no site.
    here.changed.wait(ticket, std::min<Duration>(2ms, limit - world_.now()));
  }
}

// A meeting that is complete after all has taken place.
Status HostAllReduce::give_up(const Place& place, std::uint64_t all, Failure failure) {
  Site& here = site(place);
  std::uint64_t arrived = here.arrived.load();
  do {
    if ((arrived & ~Site::kBroken) >= all) return {};
    if ((arrived & Site::kBroken) != 0) return broken(place, world_.now() - failure.waited);
    claim_blame(here);
  } while (!here.arrived.compare_exchange_weak(arrived, arrived | Site::kBroken));
  here.changed.ring();
  if (failure.kind == FailureKind::timeout) name_missing(place, failure);
  return failure;
}

void HostAllReduce::name_missing(const Place& place, Failure& failure) const {
  std::vector<Rank> missing;
  for (std::size_t i = 0; i < place.count(); ++i) {
    const bool came = shown(place, i).rounds.load(std::memory_order_relaxed) > place.reductions;
    if (!came) missing.push_back(world_.members().here[static_cast<std::size_t>(place.members[i])]);
  }
  if (!missing.empty()) {
    failure.detail = fmt::format("{} of {} did not come: rank {}", missing.size(), place.count(), fmt::join(missing, ", "));
    failure.peer = missing.front();
  } else if (place.awaited != kAnyRank) {
    failure.detail = fmt::format("all {} of this host came, but the sum of rank {} did not", place.count(), place.awaited);
    failure.peer = place.awaited;
  } else {
    failure.detail = fmt::format("all {} came, but not all went on", place.count());
  }
}

void HostAllReduce::claim_blame(Site& here) const {
  std::int64_t nobody = 0;
  here.gave_up.compare_exchange_strong(nobody, world_.rank() + 1);
}

void HostAllReduce::break_site(const Place& place) const {
  Site& here = site(place);
  claim_blame(here);
  here.arrived.fetch_or(Site::kBroken);
  here.changed.ring();
}

Failure HostAllReduce::broken(const Place& place, Time begin) const {
  const Rank culprit = static_cast<Rank>(site(place).gave_up.load() - 1);
  return {FailureKind::peer_lost,
          world_.rank(),
          culprit,
          "all members of an all-reduce",
          world_.now() - begin,
          fmt::format("rank {} gave up; form a group with a new context to go on", culprit)};
}

// Of this host. Who is gone elsewhere may have done its part before; the first member hears of it when it waits for that.
Rank HostAllReduce::gone_member(const Place& place) const {
  const World::Lock lock = world_.lock();
  if (world_.departures().empty()) return kAnyRank;
  for (const int number : place.members) {
    const Rank member = world_.members().here[static_cast<std::size_t>(number)];
    if (world_.state(member) != PeerState::alive) return member;
  }
  return kAnyRank;
}

std::optional<Failure> HostAllReduce::different_sizes(const Place& place) const {
  const std::uint64_t floats = shown(place, static_cast<std::size_t>(place.index)).floats[place.reductions % 2];
  for (std::size_t i = 0; i < place.count(); ++i) {
    if (shown(place, i).floats[place.reductions % 2] == floats) continue;
    return Failure{
        FailureKind::mismatch, world_.rank(),    -1,
        "an all-reduce",       Duration::zero(), fmt::format("the members give vectors of different length, this one {} floats", floats)};
  }
  return std::nullopt;
}

}  // namespace starling::fabric::mpi
