// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::run {
namespace {

params::Layout small_layout() {
  params::Layout layout;
  layout.add("dense1.weight", {2, 3});
  layout.add("dense1.bias", {2});
  layout.add("norm.mean", {1}, params::SliceKind::buffer);
  return layout;
}

const std::vector<float> kValues{1, 2, 3, 4, 5, 6, -0.0F, 1e-40F, 9};

std::string small_file() { return safetensors_header(small_layout(), {{"model", "test"}}) + std::string(bytes_of(kValues)); }

// A file with this header, and `count` bytes of values.
std::string file_of(const std::string& header, std::size_t count) {
  std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(count, '\0');
}

void expect_error(const std::string& bytes, const std::string& part) {
  try {
    (void)parse_safetensors(bytes, "file");
    ADD_FAILURE() << "accepted, though " << part;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Safetensors, WhatWasWrittenIsReadBitForBit) {
  const Safetensors read = parse_safetensors(small_file(), "file");
  EXPECT_EQ(read.layout, small_layout());
  ASSERT_EQ(read.values.size(), kValues.size());
  EXPECT_EQ(std::memcmp(read.values.data(), kValues.data(), kValues.size() * sizeof(float)), 0);
  EXPECT_EQ(read.metadata.at("model"), "test");
}

// As the format's description has it: little-endian length, aligned values, and the header's text byte for byte.
TEST(Safetensors, TheBytesAreThoseOfTheFormat) {
  params::Layout layout;
  layout.add("w", {1, 2});
  const std::string header = safetensors_header(layout, {});
  const std::string json = R"({"__metadata__":{"parameters":"2"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  EXPECT_EQ(header.substr(8, json.size()), json);
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(static_cast<unsigned char>(header[0]), header.size() - 8);
  EXPECT_EQ(header.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(header.find_first_not_of(' ', 8 + json.size()), std::string::npos);
}

TEST(Safetensors, NoTensorsAtAllIsAFile) {
  const Safetensors read = parse_safetensors(safetensors_header({}, {}), "file");
  EXPECT_EQ(read.layout.size(), 0U);
}

TEST(Safetensors, FilesOfOthersAreReadInTheOrderOfTheirValues) {
  const Safetensors read = parse_safetensors(
      file_of(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 12),
      "file");
  ASSERT_EQ(read.layout.slices().size(), 2U);
  EXPECT_EQ(read.layout.slices()[0].name, "a");
  EXPECT_EQ(read.layout.parameter_count(), 3U);
}

TEST(Safetensors, WhatIsWrongIsSaid) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  expect_error("", "only 0 bytes");
  expect_error(std::string(8, '\xff'), "header should have 18446744073709551615 bytes");
  expect_error(small_file().substr(0, 30), "truncated");
  expect_error(small_file().substr(0, small_file().size() - 4), "truncated");
  expect_error(small_file() + "x", "1 bytes follow the last tensor");
  expect_error(file_of("[]", 0), "not a JSON object");
  expect_error(file_of("{\"a\":", 0), "not a JSON object");
  expect_error(file_of(tensor("\"F16\"", "[2]", "[0,4]"), 4), "has the dtype \"F16\"");
  expect_error(file_of(tensor("\"F32\"", "[2]", "[0,4]"), 4), "larger by its shape");
  expect_error(file_of(tensor("\"F32\"", "[1]", "[0,8]"), 8), "needs 4 bytes by its shape, but has 8");
  expect_error(file_of(tensor("\"F32\"", "[0]", "[0,0]"), 0), "no positive number");
  expect_error(file_of(tensor("\"F32\"", "[-1]", "[0,4]"), 4), "no positive number");
  expect_error(file_of(tensor("\"F32\"", "[4294967296,4294967296,4294967296]", "[0,4]"), 4), "larger by its shape");
  expect_error(file_of(tensor("\"F32\"", "[1]", "[4,8]"), 8), "begins at byte 4, not at 0");
  expect_error(file_of(tensor("\"F32\"", "[1]", "[8,4]"), 8), "has the bytes 8 to 4");
  expect_error(file_of(tensor("\"F32\"", "[1]", "[0]"), 4), "not two numbers");
  expect_error(file_of(tensor("\"F32\"", "3", "[0,4]"), 4), "not a list");
  expect_error(file_of(R"({"a":3})", 0), "lacks dtype");
  expect_error(file_of(R"({"__metadata__":{"x":1}})", 0), "metadata 'x' is not a string");
  expect_error(file_of(R"({"__metadata__":{"parameters":"x"}})", 0), "number of parameters is 'x'");
  const std::string one = R"("shape":[1],"dtype":"F32","data_offsets":[0,4]})";
  expect_error(file_of(R"({"a":{)" + one + R"(,"b":{)" + one + "}", 4), "begins at byte 0, not at 4");
  expect_error(file_of(R"({"__metadata__":{"parameters":"1"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
               "partly parameter");
}

// Changed bytes, cut and lengthened files: whatever comes, it is read or refused.
TEST(Safetensors, MutatedFilesAreReadOrRefused) {
  const std::string original = small_file();
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomStream random(seed, 0, "mutation");
    std::string bytes = original;
    const std::uint64_t changes = 1 + random.below(4);
    for (std::uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
      const std::size_t place = random.below(bytes.size());
      switch (random.below(5)) {
        case 0:
          bytes[place] = static_cast<char>(random.below(256));
          break;
        case 1:
          bytes[place] = "0123456789[]{},:\""[random.below(17)];
          break;
        case 2:
          bytes.erase(place, 1 + random.below(16));
          break;
        case 3:
          bytes.insert(place, bytes.substr(random.below(bytes.size()), random.below(16)));
          break;
        default:
          bytes.resize(place);
          break;
      }
    }
    try {
      const Safetensors read = parse_safetensors(bytes, "file");
      EXPECT_EQ(read.values.size(), read.layout.size());
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace starling::run
