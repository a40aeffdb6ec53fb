// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The all-reduce of the MPI fabric: adds in the order of the group, whatever the hosts, so that the result is that of every other fabric to
// the last bit.
//
// Inside a host, through memory that its processes share. A vector passes in pieces through a buffer of each member: a member puts the
// slices of the others there, and when all have, adds its own slice of all, in order, and puts the sum there too; when all have, it takes
// the sums of the others. Two meetings and, for a vector of n floats, 2n floats written and read per member. Short vectors take one
// meeting: each puts all of it there and adds up for itself.
//
// Between hosts, only the first member of each host sends. Piece by piece the sum over the hosts so far arrives from the host before, the
// members of this host are added to it, and it goes on to the host after; the last one's is the result, which goes back the same way. Hosts
// work on different pieces at the same time. Every link carries the vector once in each direction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "starling/base/result.h"
#include "starling/fabric/deadline.h"
#include "starling/fabric/endpoint.h"
#include "starling/fabric/group.h"
#include "starling/fabric/mpi/host_memory.h"
#include "starling/fabric/mpi/world.h"

namespace starling::fabric::mpi {

// Belongs to the rank of this process, for one run.
class HostAllReduce {
 public:
  explicit HostAllReduce(World& world) : world_(world) {}

  // Nothing where this way is closed, for all members alike: when ranks of one host do not follow each other in the group, when queues are
  // too short to pass sums from host to host, or when a group of one host finds no meeting place left. Of a group of several hosts, some
  // may find one and others not: the latter throw UserError. Once a member has given up, every call for this group fails.
  std::optional<Status> reduce(Endpoint& endpoint, const Group& group, std::span<float> values, Deadline deadline);

 private:
  // A group as this rank sees it.
  struct Place {
    Group group;
    bool open = false;  // This way can be taken.
    std::size_t site = 0;
    std::vector<int> members{};  // Of this host, in the order of the group, by their numbers on the host.
    int index = 0;               // Of this rank among them.
    int hosts = 1;
    int hosts_after = 0;
    Rank before = kAnyRank;  // The first members of the hosts before and after.
    Rank after = kAnyRank;
    Rank awaited = kAnyRank;     // Of these: the one whose sum this host cannot do without now.
    std::uint64_t meetings = 0;  // So far; likewise below.
    std::uint64_t pieces = 0;    // That went through the buffers.
    std::uint64_t reductions = 0;

    std::size_t count() const { return members.size(); }
    bool is_first() const { return index == 0; }
  };
  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  std::size_t number_of(const Group& group);
  Place find_place(const Group& group) const;
  std::optional<std::size_t> claim_site(const Group& group) const;
  std::optional<Failure> leave_last_place(std::size_t number, Deadline deadline);
  bool may_still_read(const Place& place, std::size_t index) const;

  Status reduce_here(Place& place, std::span<float> values, Deadline deadline);
  Status reduce_short(Place& place, std::span<float> values, Deadline deadline);
  Status reduce_piece(Place& place, std::span<float> values, Deadline deadline);

  Status reduce_between(Endpoint& endpoint, Place& place, std::span<float> values, Deadline deadline);
  Status add_piece(Endpoint& endpoint, Place& place, std::span<float> values, std::size_t all, Deadline deadline);
  Status take_piece(Endpoint& endpoint, Place& place, std::span<float> values, std::size_t all, Deadline deadline);
  Status pass_on(Endpoint& endpoint, const Place& place, std::span<const float> sum, std::size_t all, Deadline deadline);

  Status meet(Place& place, Deadline deadline);
  Status give_up(const Place& place, std::uint64_t all, Failure failure);
  void name_missing(const Place& place, Failure& failure) const;
  void claim_blame(Site& here) const;
  void break_site(const Place& place) const;
  Failure broken(const Place& place, Time begin) const;
  Rank gone_member(const Place& place) const;
  std::optional<Failure> different_sizes(const Place& place) const;

  static Part part_of(std::size_t size, std::size_t parts, std::size_t index);
  void put_parts_of_others(const Place& place, std::span<const float> values, const Part& own) const;
  void add_in_order(const Place& place, std::span<float> values, const Part& own, std::span<const float> before) const;
  void take_parts_of_others(const Place& place, std::span<float> values, bool from_own_buffer) const;

  Site& site(const Place& place) const { return world_.host_memory()->sites()[place.site]; }
  SiteMember& shown(const Place& place, std::size_t index) const { return world_.host_memory()->member(place.site, place.members[index]); }
  std::span<float> buffer(const Place& place, int index) const {
    return world_.host_memory()->buffer(place.members[static_cast<std::size_t>(index)], place.pieces % 2);
  }

  World& world_;
  std::vector<Place> places_;
  std::size_t last_ = 0;  // Of the places: that of the last call that took this way.
};

}  // namespace starling::fabric::mpi
