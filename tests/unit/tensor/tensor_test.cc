// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/tensor/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

namespace starling::tensor {
namespace {

constexpr std::int64_t kLarge = std::numeric_limits<std::int64_t>::max();

TEST(Tensor, ShapesHaveSizes) {
  EXPECT_EQ(element_count({}), 1U);
  EXPECT_EQ(element_count({3, 4}), 12U);
  EXPECT_EQ(element_count({3, 0, 4}), 0U);
  EXPECT_THROW((void)element_count({3, -1}), BrokenInvariant);
  EXPECT_THROW((void)element_count({kLarge, 3}), BrokenInvariant);
  EXPECT_EQ(byte_count(DType::f64, {3, 4}), 96U);
  EXPECT_EQ(byte_count(DType::bf16, {}), 2U);
  EXPECT_EQ(byte_count(DType::u8, {kLarge, kLarge, 0}), 0U);
  EXPECT_EQ(byte_count(DType::u8, {kLarge}), static_cast<std::size_t>(kLarge));
  EXPECT_FALSE(byte_count(DType::f16, {kLarge}));
  EXPECT_FALSE(byte_count(DType::u8, {1LL << 32, 1LL << 32}));
  EXPECT_FALSE(byte_count(DType::u8, {-1, 0}));
  EXPECT_EQ(describe(DType::bf16, {2, 3}), "bf16 [2, 3]");
  EXPECT_EQ(describe(DType::i64, {}), "i64 []");
}

TEST(Tensor, ViewsLookAtMemory) {
  std::vector<double> values{1, 2, 3, 4};
  const TensorView flat = TensorView::of(std::span<const double>(values));
  EXPECT_EQ(flat.dtype, DType::f64);
  EXPECT_EQ(flat.shape, Extents{4});
  EXPECT_EQ(static_cast<const void*>(flat.bytes.data()), values.data());
  const MutableTensorView square = MutableTensorView::of(std::span(values), {2, 2});
  EXPECT_EQ(square.shape, (Extents{2, 2}));
  EXPECT_EQ(square.bytes.size(), 32U);
  EXPECT_THROW((void)TensorView::of(std::span<const double>(values), {3}), BrokenInvariant);
  const std::vector<std::uint16_t> bits(6);
  EXPECT_EQ(TensorView::of_bits(DType::f16, std::span<const std::uint16_t>(bits), {2, 3}).bytes.size(), 12U);
  EXPECT_THROW((void)TensorView::of_bits(DType::f32, std::span<const std::uint16_t>(bits)), BrokenInvariant);
}

TEST(Tensor, OwnsSharesAndCopies) {
  Tensor tensor = Tensor::allocate(DType::i32, {2, 2});
  std::ranges::fill(tensor.writable_as<std::int32_t>(), 7);
  EXPECT_EQ(tensor.size(), 4U);
  EXPECT_EQ(tensor.describe(), "i32 [2, 2]");
  EXPECT_THROW((void)tensor.as<float>(), BrokenInvariant);
  EXPECT_THROW((void)tensor.bits(), BrokenInvariant);
  Tensor other = tensor.share();
  EXPECT_EQ(other.bytes().data(), tensor.bytes().data());
  other.writable_as<std::int32_t>()[0] = 1;
  EXPECT_EQ(tensor.as<std::int32_t>()[0], 7);
  const Tensor copy = Tensor::copy_of(other.view());
  EXPECT_NE(copy.bytes().data(), other.bytes().data());
  EXPECT_EQ(copy.as<std::int32_t>()[0], 1);
  EXPECT_EQ(copy.shape(), (Extents{2, 2}));
}

TEST(Tensor, AdoptedMemoryIsReleasedAndNeverWritten) {
  const std::vector<float> values{1, 2, 3};
  int released = 0;
  Tensor tensor = Tensor::adopt(TensorView::of(std::span(values)), [&] { ++released; });
  EXPECT_EQ(tensor.as<float>().data(), values.data());
  EXPECT_EQ(released, 0);
  tensor.writable_as<float>()[1] = 9;
  EXPECT_EQ(released, 1);
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(tensor.as<float>()[2], 3);
}

TEST(Tensor, MemoryMustFitTheShapeAndTheType) {
  EXPECT_THROW((void)Tensor::from_payload(DType::f32, {3}, fabric::Payload::allocate(8)), BrokenInvariant);
  EXPECT_THROW((void)Tensor::allocate(DType::f32, {kLarge}), BrokenInvariant);
  alignas(8) const std::array<std::byte, 16> memory{};
  const TensorView crooked{.dtype = DType::f32, .shape = {2}, .bytes = std::span(memory).subspan(1, 8)};
  EXPECT_THROW((void)Tensor::adopt(crooked, {}), BrokenInvariant);
  EXPECT_EQ(Tensor::copy_of(crooked).as<float>()[0], 0);  // A copy is aligned.
}

TEST(Tensor, IsEmptyAtFirst) {
  const Tensor tensor;
  EXPECT_EQ(tensor.size(), 0U);
  EXPECT_TRUE(tensor.as<float>().empty());
}

TEST(Tensor, HalvesAreBits) {
  const std::vector<std::uint16_t> bits{0x3c00, 0x4000};
  Tensor tensor = Tensor::copy_of(TensorView::of_bits(DType::f16, std::span(bits)));
  EXPECT_EQ(tensor.bits()[1], 0x4000);
  tensor.writable_bits()[0] = 0;
  EXPECT_EQ(tensor.bits()[0], 0);
}

}  // namespace
}  // namespace starling::tensor
