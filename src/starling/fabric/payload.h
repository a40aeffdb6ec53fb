// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The bytes of a message. A payload owns its memory and is moved from sender to receiver; on fabrics inside one process the
// receiver gets the very memory the sender filled. share() makes a further handle on the same bytes, so that one vector can go
// to many receivers without a copy. A handle may have a head: a few bytes that travel beside the memory, so that memory which is lent
// or shared can be sent with a header of its own without being copied.
//
//   Payload payload = Payload::allocate(gradient.size_bytes());
//   std::ranges::copy(gradient, payload.writable_as<float>().begin());
//   STARLING_TRY(endpoint.send(peer, tag, std::move(payload)));
//
// Thread-safety: handles on the same bytes may live in different threads; a single handle belongs to one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>

namespace starling::fabric {

class Payload {
 public:
  static constexpr std::size_t kAlignment = 64;  // A cache line, and enough for every vector instruction.

  Payload() = default;  // Empty.
  Payload(Payload&& other) noexcept;
  Payload& operator=(Payload&& other) noexcept;
  Payload(const Payload&) = delete;  // Copying is always written out: share() or copy_of().
  Payload& operator=(const Payload&) = delete;
  ~Payload();

  // Memory with undefined contents, aligned to kAlignment.
  static Payload allocate(std::size_t size_bytes);

  static Payload copy_of(std::span<const std::byte> bytes);
  template <class T>
  static Payload copy_of(std::span<const T> values) {
    return copy_of(std::as_bytes(values));
  }

  // Wraps memory that somebody else allocated; `release` is called once, on any thread, when the last handle goes.
  static Payload adopt(std::span<std::byte> bytes, std::function<void()> release);

  // The same for memory that must not be written: writable() gives the handle a copy of its own.
  static Payload borrow(std::span<const std::byte> bytes, std::function<void()> release);

  // Another handle on the same bytes. It has no head.
  Payload share() const;

  // Gives this handle a copy of `bytes` as its head, in place of the one it had; none removes it. Aligned for 64-bit words.
  void set_head(std::span<const std::byte> bytes);
  std::span<const std::byte> head() const;

  std::size_t size_bytes() const;                                           // Without the head.
  std::size_t total_bytes() const { return size_bytes() + head().size(); }  // What travels.
  bool empty() const { return size_bytes() == 0; }
  std::span<const std::byte> bytes() const;

  // The bytes for writing. If another handle shares them, this handle first gets a copy of its own.
  std::span<std::byte> writable();

  // The bytes as values of type T; their number must be a multiple of sizeof(T).
  template <class T>
  std::span<const T> as() const {
    static_assert(std::is_trivially_copyable_v<T>);
    check_holds(sizeof(T));
    return {reinterpret_cast<const T*>(bytes().data()), size_bytes() / sizeof(T)};
  }
  template <class T>
  std::span<T> writable_as() {
    static_assert(std::is_trivially_copyable_v<T>);
    check_holds(sizeof(T));
    return {reinterpret_cast<T*>(writable().data()), size_bytes() / sizeof(T)};
  }

 private:
  struct Block;
  struct Head;
  struct HeadDeleter {
    void operator()(Head* head) const;
  };
  explicit Payload(Block* block) : block_(block) {}
  void release();
  void check_holds(std::size_t value_bytes) const;

  Block* block_ = nullptr;
  std::unique_ptr<Head, HeadDeleter> head_{};
};

}  // namespace starling::fabric
