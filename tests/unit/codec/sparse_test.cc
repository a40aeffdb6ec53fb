// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Top-k, random-k and DGC.
#include "starling/codec/sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "starling/codec/largest.h"
#include "unit/codec/support.h"

namespace starling::codec {
namespace {

std::vector<std::uint32_t> largest_by_sorting(const Floats& values, std::size_t k) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return std::fabs(values[a]) > std::fabs(values[b]); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

TEST(LargestComponents, AreThoseThatSortingFinds) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    RandomStream random(seed, 0, "largest");
    const std::size_t size = 1 + static_cast<std::size_t>(random.below(seed % 4 == 0 ? 50000 : 3000));
    Floats values(size);
    const std::uint64_t kind = random.below(5);
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = static_cast<float>(random.normal());
      if (kind == 1) values[i] = static_cast<float>(random.below(3)) - 1;  // Many ties.
      if (kind == 2) values[i] = i == size / 2 ? 1.0F : 0.0F;              // Almost all equal.
      if (kind == 3 && i < size / 50) values[i] *= 1000;                   // All in one place.
      if (kind == 4) values[i] = static_cast<float>(std::exp(8 * random.normal()));
    }
    LargestComponents largest;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, size / 1000, size / 100, size / 4, size - 1, size}) {
      const auto found = largest.find(values, k);
      const std::vector<std::uint32_t> expected = largest_by_sorting(values, k);
      ASSERT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end()))
          << "seed " << seed << ", k " << k << " of " << size;
    }
  }
}

TEST(LargestComponents, NanDoesNoHarm) {
  LargestComponents largest;
  for (const std::size_t k : {1U, 10U, 500U}) {
    const auto found = largest.find(Floats(1000, NAN), k);
    EXPECT_EQ(found.size(), k);
    EXPECT_LT(found.back(), 1000U);
  }
}

TEST(Sparse, ARatioIsAtLeastOneComponent) {
  EXPECT_EQ(components_of(0.5, 0), 0U);
  EXPECT_EQ(components_of(1e-9, 5), 1U);
  EXPECT_EQ(components_of(0.07, 100), 7U);
  EXPECT_EQ(components_of(0.01, 61706), 617U);
  EXPECT_EQ(components_of(1, 61706), 61706U);
}

TEST(Sparse, GapsTakeOneByteWhereTheyAreSmall) {
  Floats values(100000);
  values[0] = 1;
  values[128] = 2;
  values[257] = 3;
  values[99999] = 4;
  Bytes bytes;
  encode_sparse(values, std::vector<std::uint32_t>{0, 128, 257, 99999}, bytes);
  Bytes expected = bytes_of({0, 127, 0x80, 0x01, 0x9d, 0x8b, 0x06});  // 0, 127, 128, 99741 = 6 × 2^14 + 11 × 2^7 + 29.
  expected.resize(7 + 16);
  for (std::size_t i = 0; i < 4; ++i) put_float(expected, 7 + 4 * i, static_cast<float>(i + 1));
  EXPECT_EQ(body_of(bytes), expected);
  Floats decoded(100000, 5);
  EXPECT_EQ(decode_sparse(bytes, decoded), std::nullopt);
  EXPECT_EQ(decoded, values);
}

TEST(Sparse, RefusesWhatIsWrong) {
  const auto error = [](std::uint32_t k, const std::vector<int>& gaps, const Floats& sent) {
    Bytes bytes;
    encode_sparse(Floats(10), {}, bytes);
    std::memcpy(bytes.data() + 4, &k, 4);
    const Bytes gap_bytes = bytes_of(gaps);
    bytes.insert(bytes.end(), gap_bytes.begin(), gap_bytes.end());
    for (const float value : sent) {
      bytes.resize(bytes.size() + 4);
      put_float(bytes, bytes.size() - 4, value);
    }
    Floats values(10);
    return decode_sparse(bytes, values).value_or("none");
  };
  EXPECT_EQ(error(2, {3, 5}, {1, 2}), "none");
  EXPECT_EQ(error(2, {3, 6}, {1, 2}), "the encoded update names component 10 of 10");
  EXPECT_EQ(error(1, {0xff, 0xff, 0xff, 0xff, 0x7f}, {1}), "the encoded update names component 34359738367 of 10");
  EXPECT_EQ(error(1, {0xff, 0xff, 0xff, 0xff, 0xff, 0}, {1}), "the encoded update has a place that is too long, or ends within one");
  EXPECT_EQ(error(2, {1, 0x80}, {1, 2}), "the encoded update has a place that is too long, or ends within one");
  EXPECT_EQ(error(2, {1, 2, 3}, {1, 2}), "the encoded update has 27 bytes, but 26 were expected");
  EXPECT_EQ(error(11, std::vector<int>(11), Floats(11)), "the encoded update has 11 components of 10");
  EXPECT_EQ(error(0xffffffffU, {}, {}), "the encoded update has 4294967295 components of 10");
  EXPECT_EQ(error(3, {1}, {1}), "the encoded update has 21 bytes, but 31 were expected");
  EXPECT_EQ(error(2, {3, 5}, {1, NAN}), "the encoded update has a value that is not finite");
}

TEST(TopK, SendsTheLargestAndKeepsTheOthers) {
  const auto codec = make_codec("topk:0.4", context_of(5));
  EXPECT_EQ(send(*codec, {1, -5, 2, 4, -3}), (Floats{0, -5, 0, 4, 0}));
  EXPECT_EQ(residual_of(*codec, 5), (Floats{1, 0, 2, 0, -3}));
  EXPECT_EQ(send(*codec, {1, 1, 1, 1, 1}), (Floats{2, 0, 3, 0, 0}));  // Of 2, 1, 3, 1, -2 the two largest; a tie goes to the first.
  EXPECT_EQ(residual_of(*codec, 5), (Floats{0, 1, 0, 1, -2}));
}

TEST(RandomK, SendsOneOfEachStretch) {
  const auto codec = make_codec("randomk:0.1", context_of(1005));
  std::set<std::size_t> seen;
  for (int step = 0; step < 40; ++step) {
    const Floats decoded = send(*codec, Floats(1005, 1));
    std::size_t sent = 0;
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      if (decoded[i] == 0) continue;
      // 101 stretches, the first 96 of 10 and the others of 9 components.
      EXPECT_EQ(i < 960 ? i / 10 : 96 + (i - 960) / 9, sent);
      ++sent;
      seen.insert(i);
    }
    EXPECT_EQ(sent, 101U);
  }
  EXPECT_GT(seen.size(), 970U);  // Each is missed with probability 0.9^40 = 1.5 %.
}

TEST(RandomK, RanksDrawDifferentComponentsAndSeedsRepeat) {
  const auto drawn = [](std::uint64_t seed, std::uint32_t rank) {
    CodecContext context = context_of(1000);
    context.seed = seed;
    context.rank = rank;
    const auto codec = make_codec("randomk:0.1", context);
    return send(*codec, Floats(1000, 1));
  };
  EXPECT_EQ(drawn(1, 0), drawn(1, 0));
  EXPECT_NE(drawn(1, 0), drawn(1, 1));
  EXPECT_NE(drawn(1, 0), drawn(2, 0));
}

// u, v, and what is sent, as algorithm 4 of the paper has it.
struct PlainDgc {
  Floats u;
  Floats v;

  Floats step(const Floats& g, float momentum, bool nesterov, bool masking, std::size_t k) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      u[i] = nesterov ? momentum * (u[i] + g[i]) : momentum * u[i] + g[i];
      v[i] += nesterov ? u[i] + g[i] : u[i];
    }
    Floats sent(g.size());
    for (const std::uint32_t index : largest_by_sorting(v, k)) {
      sent[index] = v[index];
      v[index] = 0;
      if (masking) u[index] = 0;
    }
    return sent;
  }
};

TEST(Dgc, AgreesWithAPlainLoop) {
  for (const bool nesterov : {false, true}) {
    for (const bool masking : {false, true}) {
      CodecContext context = context_of(203);
      context.momentum = 0.9;
      context.nesterov = nesterov;
      const auto codec = make_codec(masking ? "dgc:0.1,warmup=0" : "dgc:0.1,warmup=0,masking=0", context);
      PlainDgc plain{.u = Floats(203), .v = Floats(203)};
      for (std::uint64_t step = 0; step < 20; ++step) {
        const Floats gradient = random_floats(203, 30 + step);
        ASSERT_EQ(send(*codec, gradient), plain.step(gradient, 0.9F, nesterov, masking, 20)) << "step " << step;
        ASSERT_EQ(residual_of(*codec, 203), plain.v);
      }
    }
  }
}

TEST(Dgc, WithEverythingSentAndNoMaskingIsPlainMomentum) {
  CodecContext context = context_of(50);
  context.momentum = 0.9;
  const auto codec = make_codec("dgc:1,warmup=0,masking=0", context);
  Floats velocity(50);
  for (std::uint64_t step = 0; step < 20; ++step) {
    const Floats gradient = random_floats(50, 60 + step);
    for (std::size_t i = 0; i < 50; ++i) velocity[i] = 0.9F * velocity[i] + gradient[i];
    ASSERT_EQ(send(*codec, gradient), velocity);
  }
}

// Masking stops the velocity of what is sent; where all is sent there is none.
TEST(Dgc, WithEverythingSentAndMaskingIsPlainDescent) {
  CodecContext context = context_of(50);
  context.momentum = 0.9;
  const auto codec = make_codec("dgc:1,warmup=0", context);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const Floats gradient = random_floats(50, 90 + step);
    ASSERT_EQ(send(*codec, gradient), gradient);
  }
}

TEST(Dgc, TheRatioComesDownOverTheFirstEpochs) {
  const auto sent_at = [](const std::string& specification, double epoch) {
    const auto codec = make_codec(specification, context_of(10000));
    codec->set_progress(epoch);
    Bytes bytes;
    codec->encode(random_floats(10000, 1), bytes);
    EXPECT_LE(bytes.size(), codec->largest_bytes());
    std::uint32_t k = 0;
    std::memcpy(&k, bytes.data() + 4, 4);
    return k;
  };
  const std::vector<std::uint32_t> expected{2500, 630, 150, 40, 10, 10, 10};
  for (std::size_t epoch = 0; epoch < expected.size(); ++epoch) {
    EXPECT_EQ(sent_at("dgc", static_cast<double>(epoch)), expected[epoch]);
    EXPECT_EQ(sent_at("dgc", static_cast<double>(epoch) + 0.99), expected[epoch]);
    EXPECT_EQ(sent_at("dgc:0.001,warmup=10", 2 * static_cast<double>(epoch) + 1), expected[epoch]);
  }
  EXPECT_EQ(sent_at("dgc:0.01", 2), 150U);
  EXPECT_EQ(sent_at("dgc:0.01", 3), 100U);  // Never below the ratio asked for.
  EXPECT_EQ(sent_at("dgc:0.0005", 4.5), 10U);
  EXPECT_EQ(sent_at("dgc:0.0005", 5), 5U);
  EXPECT_EQ(sent_at("dgc:0.5", 0), 5000U);
  EXPECT_EQ(sent_at("dgc:0.001,warmup=0", 0), 10U);
}

}  // namespace
}  // namespace starling::codec
