// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Numbers, texts and vectors as bytes, for messages between processes that run the same program. Numbers are as the machine has them, texts
// and vectors begin with their length.
//
//   ByteWriter writer;
//   writer.put(step);
//   writer.put_all(std::span<const float>(weights));
//   send(writer.take());
//
//   ByteReader reader(bytes);
//   step = reader.get<std::uint64_t>();
//   weights = reader.get_all<float>();
//   reader.check_end();
//
// A reader never reads beyond what there is, whatever a length says: bytes that end too soon, or that go on when all was read, are a broken
// invariant, because they come from another program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "starling/base/error.h"

namespace starling {

// Not thread-safe.
class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    append(std::as_bytes(std::span<const T>(&value, 1)));
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  void put_text(std::string_view text) { put_all(std::span<const char>(text)); }
  template <class T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    put(static_cast<std::uint64_t>(values.size()));
    append(std::as_bytes(values));
  }

  std::vector<std::byte> take() { return std::exchange(bytes_, {}); }

 private:
  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  std::vector<std::byte> bytes_;
};

// Not thread-safe. The bytes must outlive it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    if constexpr (std::is_same_v<T, bool>) {
      return get<std::uint8_t>() != 0;  // Any other byte than 0 and 1 would not be a bool.
    } else {
      T value;
      std::memcpy(&value, cut(sizeof(T)).data(), sizeof(T));
      return value;
    }
  }
  template <class T>
  std::optional<T> get_optional() {
    return get<bool>() ? std::optional<T>(get<T>()) : std::nullopt;
  }
  std::string get_text() {
    const std::span<const std::byte> bytes = cut_counted(1);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  template <class T>
  std::vector<T> get_all() {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    const std::span<const std::byte> bytes = cut_counted(sizeof(T));
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  // The same into memory of exactly that size.
  template <class T>
  void get_into(std::span<T> values) {
    static_assert(std::is_arithmetic_v<T>);
    const std::span<const std::byte> bytes = cut_counted(sizeof(T));
    STARLING_CHECK(bytes.size() == values.size_bytes(),
                   "a vector of " + std::to_string(bytes.size()) + " bytes came in place of one of " + std::to_string(values.size_bytes()));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }

  void check_end() const { STARLING_CHECK(rest_.empty(), std::to_string(rest_.size()) + " bytes are left of a message that was read"); }

 private:
  std::span<const std::byte> cut(std::size_t size_bytes) {
    STARLING_CHECK(size_bytes <= rest_.size(),
                   "a message ends " + std::to_string(size_bytes - rest_.size()) + " bytes before something that it should hold");
    const std::span<const std::byte> bytes = rest_.first(size_bytes);
    rest_ = rest_.subspan(size_bytes);
    return bytes;
  }

  std::span<const std::byte> cut_counted(std::size_t value_bytes) {
    const auto count = get<std::uint64_t>();
    // Compared so that the product cannot overflow.
    STARLING_CHECK(count <= rest_.size() / value_bytes,
                   "a message ends before the " + std::to_string(count) + " values that it should hold");
    return cut(static_cast<std::size_t>(count) * value_bytes);
  }

  std::span<const std::byte> rest_;
};

}  // namespace starling
