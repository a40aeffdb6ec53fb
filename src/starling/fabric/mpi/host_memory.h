// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Memory that the processes of one host share (MPI_Win_allocate_shared): a bell for each, meeting places for all-reduces, and buffers
// through which these pass their vectors. What is not used takes no memory.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "starling/fabric/mpi/bell.h"

namespace starling::fabric::mpi {

// What one member of a meeting place shows the others there. Round numbers count from 0 and go on from one all-reduce to the next; what is
// shown in one lies at its number modulo 2, because a fast member may be one round ahead, never two.
struct alignas(64) SiteMember {
  std::atomic<std::uint64_t> rounds{0};  // It has come to so many. Written by this member only.
  std::atomic<std::uint64_t> left{0};    // It has finished so many. Likewise.
  std::array<std::uint64_t, 2> floats{};
};

// Where the members of one group on this host meet. Zeros are a place that nobody has claimed.
struct alignas(64) Site {
  static constexpr std::uint64_t kBroken = std::uint64_t{1} << 63;

  std::atomic<std::uint64_t> key{0};                  // Of the group; 0 is free.
  std::atomic<std::int64_t> gave_up{0};               // The rank that broke the site, and 1.
  alignas(64) std::atomic<std::uint64_t> arrived{0};  // At all meetings so far, over all members. kBroken is set by a member that leaves.
  Bell changed;
};

class HostMemory {
 public:
  static constexpr int kSites = 128;
  static constexpr std::size_t kBufferFloats = std::size_t{1} << 17;  // Half a MiB: two of a few ranks stay in the caches.

  // Called by all processes of the host together; `communicator` has just these.
  explicit HostMemory(MPI_Comm communicator);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  // Members by their number on this host.
  Bell& bell(int member) { return bells_[static_cast<std::size_t>(member)]; }
  std::span<Site> sites() { return sites_; }
  SiteMember& member(std::size_t site, int member) {
    return members_[site * static_cast<std::size_t>(size_) + static_cast<std::size_t>(member)];
  }
  // When nobody uses them.
  void clear_sites();
  // Half `half` (0 or 1) of what a member may fill.
  std::span<float> buffer(int member, std::uint64_t half);

 private:
  int size_ = 0;
  MPI_Win window_ = MPI_WIN_NULL;
  std::span<Bell> bells_;
  std::span<Site> sites_;
  std::span<SiteMember> members_;
  std::span<float> floats_;
};

}  // namespace starling::fabric::mpi
