// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <new>

namespace starling::fabric::mpi {
namespace {

constexpr std::align_val_t kAlignment{Payload::kAlignment};

}  // namespace

BufferPool::~BufferPool() {
  for (const std::vector<std::byte*>& blocks : free_) {
    for (std::byte* block : blocks) ::operator delete(block, kAlignment);
  }
}

Payload BufferPool::allocate(std::size_t size_bytes) {
  if (size_bytes < kSmallest) return Payload::allocate(size_bytes);
  const std::size_t index = static_cast<std::size_t>(std::countr_zero(std::bit_ceil(size_bytes) / kSmallest));
  if (index >= kClasses) return Payload::allocate(size_bytes);
  std::byte* const block = take(index);
  return Payload::adopt({block, size_bytes}, [pool = shared_from_this(), block, index] { pool->give_back(block, index); });
}

std::byte* BufferPool::take(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& blocks = free_[index];
    if (!blocks.empty()) {
      std::byte* const block = blocks.back();
      blocks.pop_back();
      return block;
    }
  }
  return static_cast<std::byte*>(::operator new(kSmallest << index, kAlignment));
}

void BufferPool::give_back(std::byte* block, std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& blocks = free_[index];
    if (blocks.size() < std::min(kMostKept, std::max<std::size_t>(2, kMostBytes / (kSmallest << index)))) {
      blocks.push_back(block);
      return;
    }
  }
  ::operator delete(block, kAlignment);
}

}  // namespace starling::fabric::mpi
