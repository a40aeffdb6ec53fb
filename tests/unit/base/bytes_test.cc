// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace starling {
namespace {

std::vector<std::byte> example() {
  ByteWriter writer;
  writer.put(std::uint64_t{7});
  writer.put(true);
  writer.put(2.5);
  writer.put(std::optional<double>(0.5));
  writer.put(std::optional<double>());
  writer.put_text("at step 12");
  writer.put_all(std::span<const float>(std::vector<float>{1, 2, 3}));
  writer.put_all(std::span<const float>());
  return writer.take();
}

void read_example(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  EXPECT_EQ(reader.get<std::uint64_t>(), 7U);
  EXPECT_TRUE(reader.get<bool>());
  EXPECT_EQ(reader.get<double>(), 2.5);
  EXPECT_EQ(reader.get_optional<double>(), 0.5);
  EXPECT_EQ(reader.get_optional<double>(), std::nullopt);
  EXPECT_EQ(reader.get_text(), "at step 12");
  EXPECT_EQ(reader.get_all<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(reader.get_all<float>().empty());
  reader.check_end();
}

TEST(BytesTest, ReadsWhatWasWritten) { read_example(example()); }

TEST(BytesTest, RefusesEveryTruncation) {
  const std::vector<std::byte> bytes = example();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read_example(std::span(bytes).first(size)), BrokenInvariant) << "of " << size << " bytes";
  }
}

TEST(BytesTest, RefusesBytesThatAreLeft) {
  std::vector<std::byte> bytes = example();
  bytes.push_back(std::byte{0});
  EXPECT_THROW(read_example(bytes), BrokenInvariant);
}

TEST(BytesTest, RefusesALengthThatWouldOverflow) {
  ByteWriter writer;
  writer.put(std::numeric_limits<std::uint64_t>::max() / 2 + 2);
  const std::vector<std::byte> bytes = writer.take();
  EXPECT_THROW((void)ByteReader(bytes).get_all<float>(), BrokenInvariant);
  EXPECT_THROW((void)ByteReader(bytes).get_text(), BrokenInvariant);
}

TEST(BytesTest, ReadsIntoMemoryOfTheSameSizeOnly) {
  ByteWriter writer;
  writer.put_all(std::span<const float>(std::vector<float>{1, 2, 3}));
  const std::vector<std::byte> bytes = writer.take();
  std::vector<float> values(3);
  ByteReader(bytes).get_into(std::span(values));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  values.resize(2);
  EXPECT_THROW(ByteReader(bytes).get_into(std::span(values)), BrokenInvariant);
}

}  // namespace
}  // namespace starling
