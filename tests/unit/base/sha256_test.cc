// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "starling/base/error.h"

namespace starling {
namespace {

// The examples of FIPS 180-2, and the empty message.
TEST(Sha256, KnownMessagesHaveTheirDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheDigestOfTheWhole) {
  const std::string text = "a message in several pieces, one of them empty";
  Sha256 hash;
  hash.add(std::string_view(text).substr(0, 5));
  hash.add("");
  hash.add(std::string_view(text).substr(5));
  EXPECT_EQ(hash.hex_digest(), sha256_hex(text));
  EXPECT_THROW(hash.add("more"), BrokenInvariant);
  EXPECT_THROW((void)hash.hex_digest(), BrokenInvariant);
}

}  // namespace
}  // namespace starling
