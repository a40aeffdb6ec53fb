// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "starling/base/random.h"

namespace starling {
namespace {

// The examples of RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, KnownBytesHaveTheirChecksums) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char byte = 0; byte < 32; ++byte) ascending += byte;
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST(Crc32c, PiecesGiveTheChecksumOfTheWhole) {
  constexpr std::uint64_t kSeed = 7;
  RandomStream stream(kSeed, 0, "test");
  for (int trial = 0; trial < 100; ++trial) {
    std::string bytes(stream.below(200), '\0');
    for (char& byte : bytes) byte = static_cast<char>(stream.below(256));
    const std::size_t cut = stream.below(bytes.size() + 1);
    const std::string_view all(bytes);
    EXPECT_EQ(crc32c(all.substr(cut), crc32c(all.substr(0, cut))), crc32c(all)) << "seed " << kSeed << ", trial " << trial;
  }
}

// What it is for: any single bit that changes is seen.
TEST(Crc32c, EveryChangedBitChangesTheChecksum) {
  std::string bytes = "a record of a log";
  const std::uint32_t sum = crc32c(bytes);
  for (char& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<char>(byte ^ (1 << bit));
      EXPECT_NE(crc32c(bytes), sum);
      byte = static_cast<char>(byte ^ (1 << bit));
    }
  }
}

}  // namespace
}  // namespace starling
