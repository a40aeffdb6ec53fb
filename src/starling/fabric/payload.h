// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The bytes of a message. A payload owns its memory and is moved from sender to receiver; on fabrics inside one process the
// receiver gets the very memory the sender filled. share() makes a further handle on the same bytes, so that one vector can go
// to many receivers without a copy.
//
//   Payload payload = Payload::allocate(gradient.size_bytes());
//   std::ranges::copy(gradient, payload.writable_as<float>().begin());
//   STARLING_TRY(endpoint.send(peer, tag, std::move(payload)));
//
// Thread-safety: handles on the same bytes may live in different threads; a single handle belongs to one thread.
#pragma once

#include <cstddef>
#include <functional>
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

  // Another handle on the same bytes.
  Payload share() const;

  std::size_t size_bytes() const;
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
  explicit Payload(Block* block) : block_(block) {}
  void release();
  void check_holds(std::size_t value_bytes) const;

  Block* block_ = nullptr;
};

}  // namespace starling::fabric
