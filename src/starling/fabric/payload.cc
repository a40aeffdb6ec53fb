// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/payload.h"

#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "starling/base/error.h"

namespace starling::fabric {

// Lies in front of the bytes it describes, in the same allocation, except where the bytes were adopted.
struct alignas(Payload::kAlignment) Payload::Block {
  std::atomic<int> handles{1};
  std::span<std::byte> bytes;
  std::function<void()> release;  // Only for adopted memory.
};

Payload::Payload(Payload&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}

Payload& Payload::operator=(Payload&& other) noexcept {
  if (this != &other) {
    release();
    block_ = std::exchange(other.block_, nullptr);
  }
  return *this;
}

Payload::~Payload() { release(); }

Payload Payload::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  void* memory = ::operator new (sizeof(Block) + size_bytes, std::align_val_t{kAlignment});
  auto* block = new (memory) Block;
  block->bytes = {static_cast<std::byte*>(memory) + sizeof(Block), size_bytes};
  return Payload(block);
}

Payload Payload::copy_of(std::span<const std::byte> bytes) {
  Payload payload = allocate(bytes.size());
  if (payload.block_ != nullptr) std::memcpy(payload.block_->bytes.data(), bytes.data(), bytes.size());
  return payload;
}

Payload Payload::adopt(std::span<std::byte> bytes, std::function<void()> release) {
  auto* block = new (::operator new (sizeof(Block), std::align_val_t{kAlignment})) Block;
  block->bytes = bytes;
  block->release = std::move(release);
  return Payload(block);
}

Payload Payload::share() const {
  if (block_ != nullptr) block_->handles.fetch_add(1, std::memory_order_relaxed);
  return Payload(block_);
}

std::size_t Payload::size_bytes() const { return block_ == nullptr ? 0 : block_->bytes.size(); }

std::span<const std::byte> Payload::bytes() const {
  return block_ == nullptr ? std::span<const std::byte>() : std::span<const std::byte>(block_->bytes);
}

std::span<std::byte> Payload::writable() {
  if (block_ == nullptr) return {};
  // Acquire: the reads of a handle that has just been given up on another thread come before the writes that follow here.
  if (block_->handles.load(std::memory_order_acquire) > 1) *this = copy_of(bytes());
  return block_->bytes;
}

void Payload::release() {
  Block* block = std::exchange(block_, nullptr);
  if (block == nullptr || block->handles.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (block->release) block->release();
  block->~Block();
  ::operator delete (block, std::align_val_t{kAlignment});
}

void Payload::check_holds(std::size_t value_bytes) const {
  STARLING_CHECK(size_bytes() % value_bytes == 0, "a payload of " + std::to_string(size_bytes()) +
                                                      " bytes is not a whole number of values of " + std::to_string(value_bytes) +
                                                      " bytes");
}

}  // namespace starling::fabric
