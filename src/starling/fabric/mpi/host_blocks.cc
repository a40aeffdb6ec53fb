// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/host_blocks.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "starling/base/error.h"

namespace starling::fabric::mpi {

// Lies in front of the bytes.
struct alignas(Payload::kAlignment) HostBlocks::Header {
  std::atomic<std::uint32_t> returned;
};

HostBlocks::Header& HostBlocks::header_at(std::span<std::byte> memory, std::size_t place) {
  STARLING_CHECK(place % alignof(Header) == 0 && place <= memory.size() && sizeof(Header) <= memory.size() - place,
                 std::string("a message lies beyond the memory of its sender"));
  return *reinterpret_cast<Header*>(memory.data() + place);
}

void HostBlocks::forget_returned() {
  std::erase_if(used_, [&](const Used& one) { return header_at(memory_, one.begin).returned.load(std::memory_order_acquire) != 0; });
}

// At the first gap that is large enough: memory that was used before is in the caches, and takes no new pages.
std::optional<std::uint64_t> HostBlocks::put(std::span<const std::byte> bytes) {
  forget_returned();
  constexpr std::size_t kLine = alignof(Header);
  if (bytes.size() > memory_.size()) return std::nullopt;
  const std::size_t size = sizeof(Header) + (bytes.size() + kLine - 1) / kLine * kLine;
  std::size_t begin = 0;
  auto next = used_.begin();
  for (; next != used_.end() && next->begin - begin < size; ++next) begin = next->end;
  if (next == used_.end() && memory_.size() - begin < size) return std::nullopt;
  used_.insert(next, {begin, begin + size});
  header_at(memory_, begin).returned.store(0, std::memory_order_relaxed);
  if (!bytes.empty()) std::memcpy(memory_.data() + begin + sizeof(Header), bytes.data(), bytes.size());
  return begin;
}

Payload HostBlocks::take(const std::shared_ptr<const MemoryFile>& file, std::uint64_t place, std::size_t size_bytes) {
  const std::span<std::byte> memory = file->bytes();
  Header& header = header_at(memory, place);
  STARLING_CHECK(size_bytes <= memory.size() - place - sizeof(Header), std::string("a message lies beyond the memory of its sender"));
  return Payload::adopt(memory.subspan(place + sizeof(Header), size_bytes),
                        [file, &header] { header.returned.store(1, std::memory_order_release); });
}

}  // namespace starling::fabric::mpi
