// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Memory for messages that arrive, used again and again: large blocks fresh from the system would cost more than the message.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "starling/fabric/payload.h"

namespace starling::fabric::mpi {

// Thread-safe. Payloads may outlive the pool's owner: they share the pool.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // As Payload::allocate. Blocks of some KiB and more come back to the pool when the last handle goes.
  Payload allocate(std::size_t size_bytes);

 private:
  static constexpr std::size_t kSmallest = std::size_t{1} << 12;
  static constexpr std::size_t kClasses = 20;                       // Up to 2 GiB; larger ones are not kept.
  static constexpr std::size_t kMostKept = 16;                      // Of one class,
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // and of one class in bytes.

  std::byte* take(std::size_t index);
  void give_back(std::byte* block, std::size_t index);

  std::mutex mutex_;
  std::array<std::vector<std::byte*>, kClasses> free_;
};

}  // namespace starling::fabric::mpi
