// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/masks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::strategy {
namespace {

using Parts = std::vector<std::vector<float>>;

// What the check says; empty if it has nothing to say.
template <class Make>
std::string broken(const Make& make) {
  try {
    (void)make();
  } catch (const BrokenInvariant& error) {
    return error.what();
  }
  return "";
}

TEST(Masks, MergeCopiesWhatIsOwnedAndMixesWhatIsShared) {
  const Masks masks(5, {Mask({0, 1, 4}, {1, 1, 0.25F}), Mask({2, 4}, {1, 0.75F})});
  std::vector<float> model{9, 9, 9, 7, 9};
  masks.merge(Parts{{1, 2, 8}, {3, 4}}, model);
  EXPECT_EQ(model, (std::vector<float>{1, 2, 3, 7, 5}));  // Component 3 is nobody's.
  EXPECT_EQ(masks.owned(), 4U);
  masks.clear_unowned(model);
  EXPECT_EQ(model[3], 0);
}

TEST(Masks, ABrokenSumIsABrokenInvariantThatSaysWhere) {
  const auto of_two = [](float first, float second) {
    return [=] { return Masks(3, {Mask({0, 2}, {1, first}), Mask({1, 2}, {1, second})}); };
  };
  EXPECT_EQ(broken(of_two(0.5F, 0.5F)), "");
  EXPECT_NE(broken(of_two(0.5F, 0.25F)).find("the masks of component 2 add up to 0.75, not to 1"), std::string::npos);
  EXPECT_NE(broken(of_two(1, 1)).find("the masks of component 2 add up to 2, not to 1"), std::string::npos);
  EXPECT_NE(broken([] { return Mask({0, 2, 1}, {1, 1, 1}); }).find("component 1 comes after component 2"), std::string::npos);
  EXPECT_NE(broken([] { return Mask({0, 1}, {1}); }).find("2 indices and 1 values"), std::string::npos);
  EXPECT_NE(broken([] { return Mask({3}, {0}); }).find("the value 0 for component 3"), std::string::npos);
  EXPECT_NE(broken([] { return Masks(3, {Mask({3}, {1})}); }).find("goes beyond the 3 components"), std::string::npos);
}

TEST(Masks, PartsOfAnotherSizeAreRefused) {
  const Masks masks(3, {Mask({0, 1}, {1, 0.5F}), Mask({1, 2}, {0.5F, 1})});
  std::vector<float> model(3);
  EXPECT_NE(broken([&] { return masks.merge(Parts{{1, 2}}, model), 0; }), "");
  EXPECT_NE(broken([&] { return masks.merge(Parts{{1, 2}, {3}}, model), 0; }), "");
}

// As an average over ranks is formed elsewhere: every vector times its share, added up in order.
TEST(Masks, UniformIsTheMeanInTheOrderOfTheWorkers) {
  for (const int workers : {1, 2, 3, 7}) {
    RandomStream random(static_cast<std::uint64_t>(workers), 0, "masks");
    constexpr std::size_t kSize = 100;
    Parts parts(static_cast<std::size_t>(workers), std::vector<float>(kSize));
    for (std::vector<float>& part : parts) {
      for (float& value : part) value = static_cast<float>(random.normal());
    }
    std::vector<float> expected(kSize);
    const float share = static_cast<float>(1.0 / workers);
    for (std::size_t i = 0; i < kSize; ++i) {
      expected[i] = share * parts[0][i];
      for (std::size_t worker = 1; worker < parts.size(); ++worker) expected[i] += share * parts[worker][i];
    }
    std::vector<float> model(kSize, 5);
    const Masks masks = Masks::uniform(kSize, workers);
    masks.merge(parts, model);
    EXPECT_EQ(model, expected) << workers;
    EXPECT_EQ(masks.owned(), kSize);
    EXPECT_EQ(masks[0].shared_size(), workers == 1 ? 0 : kSize);
  }
}

// Also the sign of a zero.
TEST(Masks, OneWorkerGetsItsBitsBack) {
  const std::vector<float> part{-0.0F, 0.0F, 1e-40F, -3};
  std::vector<float> model(4, 1);
  Masks::uniform(4, 1).merge(Parts{part}, model);
  EXPECT_EQ(std::memcmp(model.data(), part.data(), sizeof(float) * 4), 0);
}

// Σ E_k + R = I for masks of any kind, and a merge is linear in what it merges, up to rounding.
TEST(MasksProperty, SumsAreOneAndMergesAreWeightedMeans) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomStream random(seed, 0, "masks");
    const std::size_t size = 1 + random.below(40);
    const std::size_t workers = 1 + random.below(6);
    std::vector<std::vector<std::uint32_t>> indices(workers);
    std::vector<std::vector<float>> values(workers);
    std::size_t unowned = 0;
    for (std::uint32_t component = 0; component < size; ++component) {
      const std::size_t sharers = random.below(workers + 1);  // The first of a random rotation.
      const std::size_t first = random.below(workers);
      unowned += sharers == 0 ? 1 : 0;
      for (std::size_t i = 0; i < sharers; ++i) {
        indices[(first + i) % workers].push_back(component);
        values[(first + i) % workers].push_back(static_cast<float>(1.0 / static_cast<double>(sharers)));
      }
    }
    std::vector<Mask> list;
    for (std::size_t worker = 0; worker < workers; ++worker) list.emplace_back(indices[worker], values[worker]);
    const Masks masks(size, list);
    EXPECT_EQ(masks.owned(), size - unowned);
    std::vector<double> sums(size);
    Parts parts;
    std::vector<float> before(size);
    for (float& value : before) value = static_cast<float>(random.normal());
    std::vector<double> expected(size);
    for (int worker = 0; worker < masks.workers(); ++worker) {
      std::vector<float>& part = parts.emplace_back(masks[worker].size());
      for (std::size_t i = 0; i < part.size(); ++i) {
        part[i] = static_cast<float>(random.normal());
        sums[masks[worker].index(i)] += static_cast<double>(masks[worker].value(i));
        expected[masks[worker].index(i)] += static_cast<double>(masks[worker].value(i)) * static_cast<double>(part[i]);
      }
    }
    std::vector<float> model = before;
    masks.merge(parts, model);
    for (std::size_t component = 0; component < size; ++component) {
      if (sums[component] == 0) {
        EXPECT_EQ(model[component], before[component]);
        continue;
      }
      EXPECT_NEAR(sums[component], 1, 2e-7);
      EXPECT_NEAR(model[component], expected[component], 1e-5);
    }
    // What is taken out of a model and merged again is the model.
    for (int worker = 0; worker < masks.workers(); ++worker) masks[worker].take(before, parts[static_cast<std::size_t>(worker)]);
    std::vector<float> again = before;
    masks.merge(parts, again);
    for (std::size_t component = 0; component < size; ++component) EXPECT_NEAR(again[component], before[component], 1e-6);
  }
}

TEST(Mask, SharedComponentsGoOutAndComeBack) {
  const Mask mask({1, 2, 4, 6}, {1, 0.5F, 1, 0.5F});
  const std::vector<float> model{0, 10, 20, 30, 40, 50, 60};
  std::vector<float> shared(mask.shared_size());
  mask.take_shared(model, shared);
  EXPECT_EQ(shared, (std::vector<float>{20, 60}));
  std::vector<float> part{1, 2, 3, 4};
  mask.copy_shared(part, shared);
  EXPECT_EQ(shared, (std::vector<float>{2, 4}));
  mask.write_shared(std::vector<float>{7, 8}, part);
  EXPECT_EQ(part, (std::vector<float>{1, 7, 3, 8}));
}

}  // namespace
}  // namespace starling::strategy
