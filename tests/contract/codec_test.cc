// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What every codec promises, whatever it does inside.
#include "starling/codec/codec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "starling/base/random.h"

namespace starling::codec {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

// As every table entry is with its defaults, and some beside them.
std::vector<std::string> specifications() {
  std::vector<std::string> result{"threshold:0.5",    "threshold:0.001",      "topk:0.2",   "topk:1",       "randomk:0.3",      "randomk:1",
                                  "dgc:0.1,warmup=0", "dgc:ratio=1,warmup=0", "powersgd:1", "powersgd:100", "dgc:0.3,masking=0"};
  for (const CodecDescription& description : codec_descriptions()) result.push_back(description.name);
  return result;
}

// Matrices, vectors and what remains, `size` floats altogether.
params::Layout layout_of(std::size_t size) {
  params::Layout layout;
  std::size_t left = size;
  for (const auto& [rows, columns] : std::vector<std::pair<std::size_t, std::size_t>>{{120, 400}, {84, 120}, {30, 25}, {3, 2}}) {
    if (rows * columns > left) continue;
    layout.add(fmt::format("weight{}", rows), {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)});
    left -= rows * columns;
  }
  if (left > 0) layout.add("bias", {static_cast<std::int64_t>(left)});
  layout.add("buffer", {5}, params::SliceKind::buffer);  // Is not part of an update.
  return layout;
}

constexpr std::size_t kSizes[] = {0, 1, 7, 1000, 61706};

std::unique_ptr<Codec> codec_for(const std::string& specification, std::size_t size, std::uint32_t rank = 0) {
  return make_codec(specification, {.layout = layout_of(size), .seed = 7, .rank = rank});
}

// A stretch of numbers drawn beforehand, because the tests need millions.
Floats random_update(RandomStream& random, std::size_t size) {
  static const Floats pool = [] {
    RandomStream own(10, 0, "pool");
    Floats values(200'000);
    for (float& value : values) value = static_cast<float>(own.normal() * std::exp(own.normal()));
    return values;
  }();
  const auto begin = static_cast<std::ptrdiff_t>(random.below(pool.size() - size + 1));
  return {pool.begin() + begin, pool.begin() + begin + static_cast<std::ptrdiff_t>(size)};
}

class CodecContract : public ::testing::TestWithParam<std::string> {};

TEST_P(CodecContract, WhatWasDecodedAndTheResidualAreWhatWasEncoded) {
  for (const std::size_t size : kSizes) {
    RandomStream random(11, 0, "sum invariant");
    const auto sender = codec_for(GetParam(), size);
    const auto receiver = codec_for(GetParam(), size, 1);
    std::vector<double> given(size);
    std::vector<double> magnitude(size);
    std::vector<double> got(size);
    Bytes bytes;
    for (int step = 0; step < 50; ++step) {
      const Floats update = random_update(random, size);
      Floats decoded(size, -123);
      sender->set_progress(0.2 * step);
      sender->encode(update, bytes);
      EXPECT_LE(bytes.size(), sender->largest_bytes());
      ASSERT_EQ(receiver->decode(bytes, decoded), std::nullopt);
      if (sender->exact()) {
        ASSERT_EQ(decoded, update);
      }
      for (std::size_t i = 0; i < size; ++i) {
        given[i] += static_cast<double>(update[i]);
        got[i] += static_cast<double>(decoded[i]);
        magnitude[i] += std::fabs(static_cast<double>(update[i])) + std::fabs(static_cast<double>(decoded[i]));
      }
    }
    Floats residual(size);
    sender->add_residual(residual);
    for (std::size_t i = 0; i < size; ++i) {
      // Each step rounds at least twice, each time by up to 2^-24 of everything so far.
      ASSERT_NEAR(got[i] + static_cast<double>(residual[i]), given[i], 6e-6 * magnitude[i] + 1e-30) << size << " floats, component " << i;
    }
    // The receiver has kept nothing.
    Floats nothing(size);
    receiver->add_residual(nothing);
    EXPECT_EQ(nothing, Floats(size));
  }
}

TEST_P(CodecContract, WhatIsKeptStaysBounded) {
  // A constant update: nothing may be kept back for ever.
  constexpr std::size_t kSize = 1000;
  const auto codec = codec_for(GetParam(), kSize);
  codec->set_progress(1000);
  RandomStream random(3, 0, "constant");
  Floats update(kSize);
  for (float& value : update) value = static_cast<float>(0.0005 * random.normal());
  Bytes bytes;
  for (int step = 0; step < 2000; ++step) codec->encode(update, bytes);
  Floats residual(kSize);
  codec->add_residual(residual);
  double sum = 0;
  double all = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    sum += std::fabs(static_cast<double>(residual[i]));
    all += 2000 * std::fabs(static_cast<double>(update[i]));
  }
  // DGC sends one component in a thousand by default, so each waits for a thousand steps.
  EXPECT_LT(sum, all / 2) << GetParam();
}

TEST_P(CodecContract, ARestoredCodecGoesOnBitForBit) {
  for (const std::size_t size : kSizes) {
    RandomStream random(12, 0, "restore");
    const CodecContext context{.layout = layout_of(size), .seed = 7, .rank = 2, .momentum = 0.9};
    const auto first = make_codec(GetParam(), context);
    const auto second = make_codec(GetParam(), context);
    Bytes bytes;
    for (int step = 0; step < 5; ++step) first->encode(random_update(random, size), bytes);
    params::StateList from;
    params::StateList to;
    first->list_state(from);
    second->list_state(to);
    ASSERT_EQ(from.vectors().size(), to.vectors().size());
    ASSERT_EQ(from.numbers().size(), to.numbers().size());
    for (std::size_t i = 0; i < from.vectors().size(); ++i) {
      ASSERT_EQ(from.vectors()[i].name, to.vectors()[i].name);
      ASSERT_EQ(from.vectors()[i].values.size(), to.vectors()[i].values.size());
      std::copy(from.vectors()[i].values.begin(), from.vectors()[i].values.end(), to.vectors()[i].values.begin());
    }
    for (std::size_t i = 0; i < from.numbers().size(); ++i) *to.numbers()[i].value = *from.numbers()[i].value;
    Bytes other;
    for (int step = 0; step < 5; ++step) {
      const Floats update = random_update(random, size);
      first->set_progress(step);
      second->set_progress(step);
      first->encode(update, bytes);
      second->encode(update, other);
      ASSERT_EQ(bytes, other) << size << " floats, step " << step;
    }
  }
}

TEST_P(CodecContract, TheDescriptionMakesTheSameCodec) {
  RandomStream random(13, 0, "description");
  const auto first = codec_for(GetParam(), 1000);
  const auto second = codec_for(first->describe(), 1000);
  EXPECT_EQ(first->describe(), second->describe());
  const Floats update = random_update(random, 1000);
  Bytes a;
  Bytes b;
  first->encode(update, a);
  second->encode(update, b);
  EXPECT_EQ(a, b);
}

TEST_P(CodecContract, ZerosGiveZerosAndTinyNumbersNoHarm) {
  for (const float value : {0.0F, -0.0F, 1e-44F, -1e-38F, 1e-20F, 60000.0F, 1e6F, -1e30F, 3.4028234e38F}) {
    if (value > 1e30F && GetParam().rfind("powersgd", 0) == 0) continue;  // Its factors are sums of many components.
    const auto codec = codec_for(GetParam(), 1000);
    const Floats update(1000, value);
    Floats decoded(1000);
    Bytes bytes;
    codec->encode(update, bytes);
    ASSERT_EQ(codec->decode(bytes, decoded), std::nullopt) << value;
    for (const float result : decoded) {
      ASSERT_TRUE(std::isfinite(result)) << value;
      if (value == 0) {
        ASSERT_EQ(result, 0);
      }
    }
  }
}

TEST_P(CodecContract, EveryTruncationAndAnExtraByteAreRefused) {
  RandomStream random(14, 0, "truncation");
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{1000}}) {
    const auto codec = codec_for(GetParam(), size);
    Bytes bytes;
    codec->encode(random_update(random, size), bytes);
    Floats decoded(size);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      // In memory of just that length, so that a sanitizer sees any read beyond it.
      const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
      ASSERT_NE(codec->decode(cut, decoded), std::nullopt) << length << " of " << bytes.size();
    }
    bytes.push_back(std::byte{0});
    EXPECT_NE(codec->decode(bytes, decoded), std::nullopt);
  }
}

TEST_P(CodecContract, HostileBytesNeverTouchAnythingElse) {
  constexpr std::uint64_t kSeed = 15;
  RandomStream random(kSeed, 0, "hostile");
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{200}, std::size_t{1000}}) {
    const auto codec = codec_for(GetParam(), size);
    Bytes valid;
    codec->encode(random_update(random, size), valid);
    for (int trial = 0; trial < 300; ++trial) {
      // Half of them random behind a good header, half with a few bytes changed.
      Bytes bytes = valid;
      if (trial % 2 == 0) {
        bytes.resize(16 + static_cast<std::size_t>(random.below(2 * valid.size())));
        for (std::size_t i = 16; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.next_u32());
      } else {
        for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
          bytes[static_cast<std::size_t>(random.below(bytes.size()))] = static_cast<std::byte>(random.next_u32());
        }
      }
      Floats guarded(size + 2, 42);
      const auto error = codec->decode(bytes, std::span(guarded).subspan(1, size));
      ASSERT_EQ(guarded.front(), 42) << "seed " << kSeed << ", trial " << trial;
      ASSERT_EQ(guarded.back(), 42) << "seed " << kSeed << ", trial " << trial;
      if (error) continue;
      for (const float value : guarded) ASSERT_TRUE(std::isfinite(value)) << "seed " << kSeed << ", trial " << trial;
    }
  }
}

TEST_P(CodecContract, BytesOfAnotherLengthOrCodecAreNamed) {
  const auto codec = codec_for(GetParam(), 1000);
  Bytes bytes;
  Floats decoded(1000);
  codec_for(GetParam(), 1001)->encode(Floats(1001, 1), bytes);
  EXPECT_EQ(codec->decode(bytes, decoded), "the update has 1001 floats, but 1000 were expected");
  const std::string other = codec->describe() == "fp16" ? "bf16" : "fp16";
  codec_for(other, 1000)->encode(Floats(1000, 1), bytes);
  const auto error = codec->decode(bytes, decoded);
  ASSERT_NE(error, std::nullopt);
  EXPECT_NE(error->find(fmt::format("was encoded by {}", other)), std::string::npos) << *error;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char letter : info.param) name += std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CodecContract, ::testing::ValuesIn(specifications()), name_of);

}  // namespace
}  // namespace starling::codec
