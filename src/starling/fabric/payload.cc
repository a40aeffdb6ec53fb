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
  std::function<void()> release;  // Only for memory of somebody else's.
  bool read_only = false;
};

// Lies in front of its bytes, in the same allocation.
struct Payload::Head {
  std::size_t size_bytes;

  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

void Payload::HeadDeleter::operator()(Head* head) const { ::operator delete(head); }

Payload::Payload(Payload&& other) noexcept : block_(std::exchange(other.block_, nullptr)), head_(std::move(other.head_)) {}

Payload& Payload::operator=(Payload&& other) noexcept {
  if (this != &other) {
    release();
    block_ = std::exchange(other.block_, nullptr);
    head_ = std::move(other.head_);
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

Payload Payload::borrow(std::span<const std::byte> bytes, std::function<void()> release) {
  // The bytes are not written: every handle that is asked for writing gets others first.
  Payload payload = adopt({const_cast<std::byte*>(bytes.data()), bytes.size()}, std::move(release));
  payload.block_->read_only = true;
  return payload;
}

Payload Payload::share() const {
  if (block_ != nullptr) block_->handles.fetch_add(1, std::memory_order_relaxed);
  return Payload(block_);
}

void Payload::set_head(std::span<const std::byte> bytes) {
  if (bytes.empty()) return head_.reset();
  std::unique_ptr<Head, HeadDeleter> head(new (::operator new(sizeof(Head) + bytes.size())) Head{bytes.size()});
  std::memcpy(head->bytes(), bytes.data(), bytes.size());
  head_ = std::move(head);
}

std::span<const std::byte> Payload::head() const {
  return head_ == nullptr ? std::span<const std::byte>() : std::span<const std::byte>(head_->bytes(), head_->size_bytes);
}

std::size_t Payload::size_bytes() const { return block_ == nullptr ? 0 : block_->bytes.size(); }

std::span<const std::byte> Payload::bytes() const {
  return block_ == nullptr ? std::span<const std::byte>() : std::span<const std::byte>(block_->bytes);
}

std::span<std::byte> Payload::writable() {
  if (block_ == nullptr) return {};
  // Acquire: the reads of a handle that has just been given up on another thread come before the writes that follow here.
  if (block_->handles.load(std::memory_order_acquire) > 1 || block_->read_only) {
    Payload copy = copy_of(bytes());
    std::swap(block_, copy.block_);  // The head stays.
    if (block_ == nullptr) return {};
  }
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
