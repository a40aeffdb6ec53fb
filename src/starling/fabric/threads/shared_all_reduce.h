// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The all-reduce of threads: every member shows the others its vector, and each adds up one slice of all vectors, in the order of the
// group, straight into all of them. Two meetings, no copy. Short vectors take one meeting: every member puts a copy on the table and adds
// up the whole for itself.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "starling/base/notifier.h"
#include "starling/base/result.h"
#include "starling/fabric/deadline.h"
#include "starling/fabric/group.h"

namespace starling::fabric::threads {

class World;

class SharedAllReduce {
 public:
  SharedAllReduce(Group group, World& world);

  const Group& group() const { return group_; }

  // Called by the member at position `index` of the group, each member once per round. Once a member has given up, the site stays broken,
  // and every call fails.
  Status reduce(int index, std::span<float> values, Deadline deadline);

  // Makes waiting members look whether one of them has departed.
  void wake() { changed_.wake(); }

 private:
  static constexpr std::size_t kShort = 64;  // In floats: up to here, a copy costs less than a second meeting (measured).
  static constexpr std::uint64_t kBroken = std::uint64_t{1} << 63;

  // What a member shows in one round. Two of them by turns, because a fast member may begin the next round while a slow one still reads
  // this one; it cannot be two rounds ahead.
  struct alignas(64) Shown {
    float* values = nullptr;
    std::size_t size = 0;
    std::array<float, kShort> copy;
  };
  struct alignas(64) Member {
    std::atomic<std::uint64_t> round{0};  // How many rounds it has come to. Written by this member only.
    std::uint64_t long_rounds = 0;        // Those of them with a second meeting. Touched by this member only.
    std::array<Shown, 2> shown;
  };

  Status meet(int index, std::uint64_t round, Deadline deadline);
  Status give_up(int index, std::uint64_t round, Failure failure);
  Failure broken(int index, Time begin) const;
  const Shown& shown(int index, std::uint64_t round) const { return members_[static_cast<std::size_t>(index)].shown[round % 2]; }
  bool sizes_differ(std::uint64_t round) const;
  void add_short(std::span<float> values, std::uint64_t round) const;
  void add_slice(int index, std::size_t size, std::uint64_t round) const;

  const Group group_;
  World& world_;
  std::vector<Member> members_;
  Notifier changed_;
  std::atomic<Rank> gave_up_{kAnyRank};  // The member that broke the site.
  // Counted over all rounds: round r may begin when arrived_ has reached (r + 1) · members. kBroken is set by a member that leaves.
  // Likewise done_, over the long rounds.
  alignas(64) std::atomic<std::uint64_t> arrived_{0};
  alignas(64) std::atomic<std::uint64_t> done_{0};
};

}  // namespace starling::fabric::threads
