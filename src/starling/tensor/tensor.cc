// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/tensor/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace starling::tensor {
std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  throw_broken_invariant("dtype", __FILE__, __LINE__, "a type of tensors that does not exist");
}

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "unknown";
}

std::optional<std::size_t> byte_count(DType dtype, const Extents& shape) {
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; })) return std::nullopt;
  // Nothing is nothing, however large the other extents are.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    if (bytes > kMost / static_cast<std::size_t>(extent)) return std::nullopt;
    bytes *= static_cast<std::size_t>(extent);
  }
  return bytes;
}

std::size_t element_count(const Extents& shape) {
  const std::optional<std::size_t> count = byte_count(DType::u8, shape);
  STARLING_CHECK(count.has_value(), fmt::format("the shape [{}]", fmt::join(shape, ", ")));
  return *count;
}

std::string describe(DType dtype, const Extents& shape) { return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", ")); }

void check_memory(DType dtype, const Extents& shape, std::span<const std::byte> bytes) {
  STARLING_CHECK(byte_count(dtype, shape) == bytes.size(), fmt::format("{} in {} bytes", describe(dtype, shape), bytes.size()));
  STARLING_CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(dtype) == 0,
                 fmt::format("{} in memory that is not aligned", describe(dtype, shape)));
}

Tensor Tensor::allocate(DType dtype, Extents shape) {
  const std::optional<std::size_t> bytes = byte_count(dtype, shape);
  STARLING_CHECK(bytes.has_value(), fmt::format("a tensor {}", tensor::describe(dtype, shape)));
  return from_payload(dtype, std::move(shape), fabric::Payload::allocate(*bytes));
}

Tensor Tensor::copy_of(const TensorView& view) { return from_payload(view.dtype, view.shape, fabric::Payload::copy_of(view.bytes)); }

Tensor Tensor::adopt(const TensorView& view, std::function<void()> release) {
  return from_payload(view.dtype, view.shape, fabric::Payload::borrow(view.bytes, std::move(release)));
}

Tensor Tensor::from_payload(DType dtype, Extents shape, fabric::Payload payload) {
  check_memory(dtype, shape, payload.bytes());
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.payload_ = std::move(payload);
  return tensor;
}

Tensor Tensor::share() const { return from_payload(dtype_, shape_, payload_.share()); }

void Tensor::check_type(DType wanted) const {
  STARLING_CHECK(dtype_ == wanted, fmt::format("a tensor {} was read as {}", describe(), to_string(wanted)));
}

void Tensor::check_half() const {
  STARLING_CHECK(dtype_ == DType::f16 || dtype_ == DType::bf16, fmt::format("a tensor {} was read as bits", describe()));
}

}  // namespace starling::tensor
