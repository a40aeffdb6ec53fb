// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The way of a message's body inside a host: the sender leaves a copy in memory that the processes share, and the receiver's payload is
// that very copy. Neither waits for the other, and there is no system call. MPI's own ways are one copy by the kernel, which measured
// slower where ranks sleep while they wait, or a conversation of fragments, which goes on only while both sides look after it.
//
//   HostBlocks blocks(file.bytes());                                            // At the sender.
//   const std::optional<std::uint64_t> place = blocks.put(body);
//   Payload payload = HostBlocks::take(opened_file, *place, body.size());       // At the receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "starling/fabric/mpi/memory_file.h"
#include "starling/fabric/payload.h"

namespace starling::fabric::mpi {

// At the sender, who alone puts. Receivers give blocks back in any order and keep them as long as they like: the room of the others is used
// again meanwhile. Its memory begins with zeros.
class HostBlocks {
 public:
  explicit HostBlocks(std::span<std::byte> memory) : memory_(memory) {}

  // Where the copy lies, for the receiver; nothing if there is no room for it now.
  std::optional<std::uint64_t> put(std::span<const std::byte> bytes);

  // At the receiver, once for every put: the block as a payload, which gives it back when its last handle goes. `file` is the sender's
  // memory; payloads keep it.
  static Payload take(const std::shared_ptr<const MemoryFile>& file, std::uint64_t place, std::size_t size_bytes);

 private:
  struct Header;
  struct Used {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  static Header& header_at(std::span<std::byte> memory, std::size_t place);
  void forget_returned();

  std::span<std::byte> memory_;
  std::vector<Used> used_{};  // In the order of their places.
};

}  // namespace starling::fabric::mpi
