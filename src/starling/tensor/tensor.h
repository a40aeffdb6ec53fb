// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Tensors as they travel: a type, a shape, and contiguous memory. A TensorView looks at memory somebody else owns (a LibTorch tensor, a
// std::vector, a part of the flat weights); a Tensor owns memory that can be sent without a copy.
//
//   TensorView view = TensorView::of(std::span<const float>(gradient));            // One dimension.
//   TensorView image = TensorView::of(std::span<const std::uint8_t>(pixels), {28, 28});
//   Tensor tensor = Tensor::allocate(DType::f32, {100, 10});
//   tensor.writable_as<float>()[0] = 1;
//
// Values of f16 and bf16 are handled as std::uint16_t bit patterns:
//
//   TensorView halves = TensorView::of_bits(DType::f16, std::span<const std::uint16_t>(bits), {10, 20});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "starling/base/error.h"
#include "starling/fabric/payload.h"

namespace starling::tensor {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8 };

std::size_t size_of(DType dtype);
const char* to_string(DType dtype);

using Extents = std::vector<std::int64_t>;

// The product of the extents; 1 for none. Precondition (checked): none is negative, and it is a number of bytes that memory can have.
std::size_t element_count(const Extents& shape);

// How many bytes such a tensor has; nothing where there cannot be one. For shapes that come from elsewhere.
std::optional<std::size_t> byte_count(DType dtype, const Extents& shape);

// "f32 [100, 10]", for messages.
std::string describe(DType dtype, const Extents& shape);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::f64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return DType::i32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return DType::i64;
  } else {
    static_assert(std::is_same_v<T, std::uint8_t>, "f16 and bf16 are given as bits, with their type");
    return DType::u8;
  }
}

// Throws BrokenInvariant unless there are as many bytes as the shape says, where values of the type may lie.
void check_memory(DType dtype, const Extents& shape, std::span<const std::byte> bytes);

// Memory of somebody else's, valid as long as that is.
template <class Byte>
struct BasicTensorView {
  DType dtype = DType::f32;
  Extents shape{};
  std::span<Byte> bytes{};

  // Without a shape: one dimension.
  template <class T>
  static BasicTensorView of(std::span<T> values, Extents shape = {}) {
    return over(dtype_of<std::remove_const_t<T>>(), values, std::move(shape));
  }

  // The same for f16 and bf16; Bits is std::uint16_t, const or not.
  template <class Bits>
  static BasicTensorView of_bits(DType dtype, std::span<Bits> bits, Extents shape = {}) {
    static_assert(std::is_same_v<std::remove_const_t<Bits>, std::uint16_t>, "the bits of f16 and bf16");
    return over(dtype, bits, std::move(shape));
  }

 private:
  template <class T>
  static BasicTensorView over(DType dtype, std::span<T> values, Extents shape);
};
using TensorView = BasicTensorView<const std::byte>;
using MutableTensorView = BasicTensorView<std::byte>;

// Some rows of a matrix (of a tensor, by its first dimension), as the gradient of an embedding is. `rows` are distinct indices below
// shape[0], ascending; `values` has rows.size() × (product of the other extents) values.
struct SparseRowsView {
  DType dtype = DType::f32;
  Extents shape{};  // Of the whole.
  std::span<const std::int64_t> rows{};
  std::span<const std::byte> values{};
};

// Owns its memory, or shares it (see fabric::Payload). Movable.
class Tensor {
 public:
  Tensor() = default;

  // Undefined contents.
  static Tensor allocate(DType dtype, Extents shape);
  static Tensor copy_of(const TensorView& view);
  // Looks at memory that stays as it is until `release` is called, on whatever thread lets go of it last. Nobody writes to that memory:
  // a tensor on it that is asked for writing gets a copy of its own first.
  static Tensor adopt(const TensorView& view, std::function<void()> release);
  static Tensor from_payload(DType dtype, Extents shape, fabric::Payload payload);

  DType dtype() const { return dtype_; }
  const Extents& shape() const { return shape_; }
  std::size_t size() const { return element_count(shape_); }
  std::string describe() const { return tensor::describe(dtype_, shape_); }

  std::span<const std::byte> bytes() const { return payload_.bytes(); }
  TensorView view() const { return {.dtype = dtype_, .shape = shape_, .bytes = bytes()}; }
  // If the memory is shared, this tensor first gets a copy of its own.
  std::span<std::byte> writable() { return payload_.writable(); }

  // Precondition (checked): T is the type of the values.
  template <class T>
  std::span<const T> as() const {
    check_type(dtype_of<T>());
    return payload_.as<T>();
  }
  template <class T>
  std::span<T> writable_as() {
    check_type(dtype_of<T>());
    return payload_.writable_as<T>();
  }

  // The values of f16 and bf16. Precondition (checked): it is one of them.
  std::span<const std::uint16_t> bits() const {
    check_half();
    return payload_.as<std::uint16_t>();
  }
  std::span<std::uint16_t> writable_bits() {
    check_half();
    return payload_.writable_as<std::uint16_t>();
  }

  // Another tensor on the same memory.
  Tensor share() const;
  fabric::Payload take_payload() { return std::move(payload_); }

 private:
  void check_type(DType wanted) const;
  void check_half() const;

  DType dtype_ = DType::f32;
  Extents shape_{0};
  fabric::Payload payload_{};
};

// Sparse rows that arrived.
struct SparseRows {
  DType dtype = DType::f32;
  Extents shape{};
  std::vector<std::int64_t> rows{};
  Tensor values{};  // [rows, …]
};

template <class Byte>
template <class T>
BasicTensorView<Byte> BasicTensorView<Byte>::over(DType dtype, std::span<T> values, Extents shape) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
  BasicTensorView view{.dtype = dtype, .shape = std::move(shape)};
  if constexpr (std::is_const_v<Byte>) {
    view.bytes = std::as_bytes(values);
  } else {
    view.bytes = std::as_writable_bytes(values);
  }
  check_memory(dtype, view.shape, view.bytes);
  return view;
}

}  // namespace starling::tensor
