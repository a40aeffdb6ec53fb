// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/tensor/wire.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace starling::tensor {
namespace {

using Words = std::vector<std::uint64_t>;

// Positions in the head of a tensor with one dimension.
constexpr std::size_t kExtent = 1;
constexpr std::size_t kOrigin = 2;
constexpr std::size_t kOrigins = 6;

params::Stamp some_stamp() {
  params::Stamp stamp{.id = {.origin = 3, .number = 1ULL << 40}, .version = 17, .value = 0.1};
  stamp.contents = params::VersionVector(2);
  stamp.contents[0] = params::NumberSet(5);
  stamp.contents[1].insert(4);
  return stamp;
}

fabric::Payload payload_of(const Words& words, std::size_t payload_bytes) {
  fabric::Payload payload = fabric::Payload::allocate(payload_bytes);
  payload.set_head(std::as_bytes(std::span(words)));
  return payload;
}

std::string error_of(const Words& words, std::size_t payload_bytes) {
  Header header;
  return read_head(payload_of(words, payload_bytes), header).value_or("");
}

Words head_of(Form form, DType dtype, const Extents& shape, const std::vector<std::int64_t>& rows = {}, const params::Stamp& stamp = {}) {
  Words words;
  write_head(form, dtype, shape, rows, stamp, words);
  return words;
}

TEST(TensorHead, ComesBack) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    for (const Extents& shape : {Extents{}, Extents{0}, Extents{5}, Extents{2, 0, 9}, Extents{4, 3, 2, 1, 1}}) {
      Header header;
      const auto error =
          read_head(payload_of(head_of(Form::dense, dtype, shape, {}, some_stamp()), element_count(shape) * size_of(dtype)), header);
      ASSERT_FALSE(error) << *error;
      EXPECT_EQ(header.form, Form::dense);
      EXPECT_EQ(header.dtype, dtype);
      EXPECT_EQ(header.shape, shape);
      EXPECT_EQ(header.value_shape(), shape);
      EXPECT_EQ(header.stamp, some_stamp());
      EXPECT_TRUE(header.rows.empty());
    }
  }
}

TEST(TensorHead, RowsComeBack) {
  Header header;
  const std::vector<std::int64_t> rows{0, 3, 9};
  const auto error = read_head(payload_of(head_of(Form::sparse, DType::f32, {10, 2}, rows), 24), header);
  ASSERT_FALSE(error) << *error;
  EXPECT_EQ(header.rows, rows);
  EXPECT_EQ(header.value_shape(), (Extents{3, 2}));
  EXPECT_EQ(header.describe(), "3 rows of f32 [10, 2]");
  EXPECT_EQ(error_of(head_of(Form::sparse, DType::f32, {10, 2}), 0), "");
}

// A header object that is used again keeps nothing of what was read before.
TEST(TensorHead, NothingIsLeftOfTheOneBefore) {
  Header header;
  ASSERT_FALSE(read_head(payload_of(head_of(Form::sparse, DType::f64, {10, 2}, {1, 2}, some_stamp()), 32), header));
  ASSERT_FALSE(read_head(payload_of(head_of(Form::dense, DType::f32, {5}), 20), header));
  EXPECT_EQ(header.shape, Extents{5});
  EXPECT_TRUE(header.rows.empty());
  EXPECT_EQ(header.stamp, params::Stamp{});
}

TEST(TensorHead, AStampMayHoldAnyValue) {
  params::Stamp stamp = some_stamp();
  stamp.value = std::numeric_limits<double>::quiet_NaN();
  Header header;
  ASSERT_FALSE(read_head(payload_of(head_of(Form::dense, DType::u8, {1}, {}, stamp), 1), header));
  EXPECT_TRUE(std::isnan(header.stamp.value));
}

TEST(TensorHead, IsSmall) { EXPECT_EQ(head_of(Form::dense, DType::f32, {5}).size() * sizeof(std::uint64_t), 64U); }

Words changed(Words words, std::size_t index, std::uint64_t value) {
  words[index] = value;
  return words;
}

TEST(TensorHead, WhatIsNoneIsRefused) {
  constexpr auto kMinus = static_cast<std::uint64_t>(-1);
  const Words good = head_of(Form::dense, DType::f32, {5});
  ASSERT_EQ(error_of(good, 20), "");
  EXPECT_EQ(error_of({}, 20), "it has no head");
  EXPECT_EQ(error_of(changed(good, 0, good[0] ^ 1ULL << 40), 20), "it does not begin as one");
  EXPECT_EQ(error_of(changed(good, 0, (good[0] & ~0xffULL) | 7), 20), "there is no type 7");
  EXPECT_EQ(error_of(changed(good, 0, good[0] | 0x300), 20), "there is no form 3");
  EXPECT_EQ(error_of(changed(good, 0, good[0] | 0xff0000), 20), "it has 255 dimensions and names 7");
  EXPECT_EQ(error_of(changed(good, 0, good[0] | 0xffff0000), 20), "it has 65535 dimensions");
  EXPECT_EQ(error_of(changed(good, kExtent, kMinus), 20), "there is no f32 [-1]");
  EXPECT_EQ(error_of(changed(good, kExtent, 1ULL << 62), 20), "there is no f32 [4611686018427387904]");
  EXPECT_EQ(error_of(good, 19), "it says it is f32 [5] and has 19 bytes instead of 20");
  EXPECT_EQ(error_of(changed(good, kOrigin, 1ULL << 31), 20), "it comes from rank 2147483648");
  EXPECT_EQ(error_of(changed(good, kOrigin, kMinus - 1), 20), "it comes from rank -2");
  EXPECT_EQ(error_of(changed(good, kOrigins, 1), 20), "its version vector is none");
  EXPECT_EQ(error_of(Words(good.begin(), good.end() - 3), 20), "its stamp is cut off");
  Words longer = good;
  longer.push_back(0);
  EXPECT_EQ(error_of(longer, 20), "its head goes on for 1 words");

  fabric::Payload odd = fabric::Payload::allocate(20);
  odd.set_head(std::as_bytes(std::span(good)).first(63));
  Header header;
  EXPECT_EQ(read_head(odd, header), "its head has 63 bytes");

  EXPECT_EQ(error_of(head_of(Form::encoded, DType::f32, {5}), 3), "");
  EXPECT_EQ(error_of(head_of(Form::encoded, DType::f64, {5}), 40), "it is f64 [5] through a codec, which no codec takes");
}

TEST(TensorHead, RowsThatAreNoneAreRefused) {
  const auto error = [](const Extents& shape, const std::vector<std::int64_t>& rows, std::size_t payload_bytes) {
    return error_of(head_of(Form::sparse, DType::f32, shape, rows), payload_bytes);
  };
  EXPECT_EQ(error({10, 2}, {3, 3}, 16), "its row 3 comes after 3, of 10");
  EXPECT_EQ(error({10, 2}, {3, 2}, 16), "its row 2 comes after 3, of 10");
  EXPECT_EQ(error({10, 2}, {10}, 8), "its row 10 comes after -1, of 10");
  EXPECT_EQ(error({10, 2}, {-1}, 8), "its row -1 comes after -1, of 10");
  EXPECT_EQ(error({}, {}, 4), "it has sparse rows but no dimension");
  EXPECT_EQ(error({10, 2}, {3}, 16), "it says it is 1 rows of f32 [10, 2] and has 16 bytes instead of 8");
  Words words = head_of(Form::sparse, DType::f32, {10}, {1, 2});
  words.pop_back();
  EXPECT_EQ(error_of(words, 8), "it says it has 2 rows and names 1");
  words.resize(words.size() - 2);
  EXPECT_EQ(error_of(words, 8), "its rows are cut off");
  words.push_back(~0ULL);
  EXPECT_EQ(error_of(words, 8), "it says it has 18446744073709551615 rows and names 0");
}

}  // namespace
}  // namespace starling::tensor
