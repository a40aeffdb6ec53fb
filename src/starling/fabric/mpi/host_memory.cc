// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/host_memory.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <new>

#include "starling/base/error.h"
#include "starling/fabric/mpi/call.h"

namespace starling::fabric::mpi {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The next `count` objects of memory that holds zeros, which is what new ones are made of.
template <class T>
std::span<T> cut(std::byte*& at, std::size_t count) {
  auto* const first = reinterpret_cast<T*>(at);
  at += whole_pages(count * sizeof(T));
  return {first, count};
}

}  // namespace

HostMemory::HostMemory(MPI_Comm communicator) {
  int rank = 0;
  call("MPI_Comm_rank", MPI_Comm_rank(communicator, &rank));
  call("MPI_Comm_size", MPI_Comm_size(communicator, &size_));
  const auto members = static_cast<std::size_t>(size_);
  const std::size_t head_bytes =
      whole_pages(members * sizeof(Bell)) + whole_pages(kSites * sizeof(Site)) + whole_pages(kSites * members * sizeof(SiteMember));
  const std::size_t bytes = head_bytes + members * 2 * kBufferFloats * sizeof(float) + kPage;
  void* own = nullptr;
  // The first has it all, so that it is in one piece.
  const int allocated =
      MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL, communicator, &own, &window_);
  if (allocated != MPI_SUCCESS) {
    throw UserError(fmt::format("the {} processes of this host cannot share {} MiB of memory: see that /dev/shm has that much", size_,
                                (bytes >> 20U) + 1));
  }
  MPI_Aint given_bytes = 0;
  int unit = 0;
  void* first = nullptr;
  call("MPI_Win_shared_query", MPI_Win_shared_query(window_, 0, &given_bytes, &unit, &first));
  std::size_t space = bytes;
  void* aligned = first;
  std::align(kPage, bytes - kPage, aligned, space);
  if (rank == 0) std::memset(aligned, 0, head_bytes);
  auto* at = static_cast<std::byte*>(aligned);
  bells_ = cut<Bell>(at, members);
  sites_ = cut<Site>(at, kSites);
  members_ = cut<SiteMember>(at, kSites * members);
  floats_ = cut<float>(at, members * 2 * kBufferFloats);
  call("MPI_Barrier", MPI_Barrier(communicator));
}

HostMemory::~HostMemory() { MPI_Win_free(&window_); }

void HostMemory::clear_sites() {
  for (Site& site : sites_) new (&site) Site;
  for (SiteMember& member : members_) new (&member) SiteMember;
}

std::span<float> HostMemory::buffer(int member, std::uint64_t half) {
  return floats_.subspan((static_cast<std::size_t>(member) * 2 + half) * kBufferFloats, kBufferFloats);
}

}  // namespace starling::fabric::mpi
