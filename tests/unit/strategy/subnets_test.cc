// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/subnets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/compute/network.h"

namespace starling::strategy {
namespace {

const compute::Problem kImages{.input = {1, 28, 28}, .outputs = 10, .labels = true};

params::Layout layout_of(const std::string& model, const compute::Problem& problem = kImages) {
  return compute::layout_of(compute::parse_network(model, problem));
}

std::string mistake(const std::string& model, int workers) {
  try {
    (void)Subnets(layout_of(model), workers, 1);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void expect_mistake(const std::string& model, int workers, const std::string& part) {
  EXPECT_NE(mistake(model, workers).find(part), std::string::npos) << model << ": " << mistake(model, workers);
}

TEST(Subnets, EveryModelThatCannotBeCutIsRefusedWithTheReason) {
  expect_mistake("lenet5", 2, "conv1.weight [6, 1, 5, 5] is no part of a perceptron");
  expect_mistake("lenet5", 2, "try --model mlp:784-1000-1000-10");
  expect_mistake("dense 20, batchnorm, relu, dense 10", 2,
                 "running statistics, as 'norm1.mean': write 'batchnorm batch' in place of 'batchnorm'");
  expect_mistake("softmax", 2, "no hidden layer");
  expect_mistake("mlp:784-20-3-10", 4, "hidden layer 2 has 3 units, too few for 4 workers");
  EXPECT_EQ(mistake("mlp:784-20-4-10", 4), "no error");
  EXPECT_EQ(mistake("softmax", 1), "no error");
  params::Layout unchained;
  unchained.add("a", {5, 3});
  unchained.add("b", {2, 4});
  EXPECT_THROW(Subnets(unchained, 2, 1), UserError);
  params::Layout stray;
  stray.add("a", {5, 3});
  stray.add("b", {4});
  EXPECT_THROW(Subnets(stray, 2, 1), UserError);
}

TEST(Subnets, OneWorkerHasTheWholeModel) {
  const params::Layout layout = layout_of("dense 7, batchnorm batch, relu, dense 5 no bias, tanh, dense 10");
  const Subnets subnets(layout, 1, 3);
  EXPECT_EQ(subnets.part_layout(0), layout);
  const Mask mask = subnets.mask(0, 4);
  ASSERT_EQ(mask.size(), layout.size());
  for (std::size_t i = 0; i < mask.size(); ++i) {
    ASSERT_EQ(mask.index(i), i);
    ASSERT_EQ(mask.value(i), 1);
  }
}

// dense1 3→4, dense2 4→2, dense3 2→2, for two workers: small enough to be written out from the rows of the first layer.
TEST(Subnets, AWorkerHasWhatLiesBetweenItsOwnUnits) {
  const compute::Problem problem{.input = {3, 1, 1}, .outputs = 2, .labels = true};
  const params::Layout layout = layout_of("mlp:3-4-2-2", problem);
  const Subnets subnets(layout, 2, 5);
  for (int worker = 0; worker < 2; ++worker) {
    const Mask mask = subnets.mask(worker, 0);
    std::set<std::uint32_t> indices;
    for (std::size_t i = 0; i < mask.size(); ++i) indices.insert(mask.index(i));
    std::vector<std::uint32_t> first;  // Its units, as seen from its biases.
    std::vector<std::uint32_t> second;
    const auto bias1 = static_cast<std::uint32_t>(layout.find("dense1.bias")->offset);
    const auto bias2 = static_cast<std::uint32_t>(layout.find("dense2.bias")->offset);
    for (std::uint32_t unit = 0; unit < 4; ++unit) {
      if (indices.contains(bias1 + unit)) first.push_back(unit);
    }
    for (std::uint32_t unit = 0; unit < 2; ++unit) {
      if (indices.contains(bias2 + unit)) second.push_back(unit);
    }
    ASSERT_EQ(first.size(), 2U);
    ASSERT_EQ(second.size(), 1U);
    std::set<std::uint32_t> expected;
    const auto weight2 = static_cast<std::uint32_t>(layout.find("dense2.weight")->offset);
    const auto weight3 = static_cast<std::uint32_t>(layout.find("dense3.weight")->offset);
    const auto bias3 = static_cast<std::uint32_t>(layout.find("dense3.bias")->offset);
    for (const std::uint32_t unit : first) {
      for (std::uint32_t input = 0; input < 3; ++input) expected.insert(unit * 3 + input);
      expected.insert(bias1 + unit);
      for (const std::uint32_t to : second) expected.insert(weight2 + to * 4 + unit);
    }
    for (const std::uint32_t unit : second) {
      expected.insert(bias2 + unit);
      for (std::uint32_t output = 0; output < 2; ++output) expected.insert(weight3 + output * 2 + unit);
    }
    expected.insert({bias3, bias3 + 1});
    EXPECT_EQ(indices, expected);
    for (std::size_t i = 0; i < mask.size(); ++i) EXPECT_EQ(mask.value(i), mask.index(i) >= bias3 ? 0.5F : 1.0F);
  }
}

TEST(Subnets, ADealIsAFunctionOfSeedAndRound) {
  const params::Layout layout = layout_of("mlp:784-40-30-10");
  const auto indices = [&](std::uint64_t seed, std::uint64_t round) {
    const Mask mask = Subnets(layout, 3, seed).mask(1, round);
    std::vector<std::uint32_t> result;
    for (std::size_t i = 0; i < mask.size(); ++i) result.push_back(mask.index(i));
    return result;
  };
  EXPECT_EQ(indices(1, 0), indices(1, 0));
  EXPECT_NE(indices(1, 0), indices(1, 1));
  EXPECT_NE(indices(1, 0), indices(2, 0));
  EXPECT_EQ(indices(1, 7).size(), indices(2, 100).size());
}

TEST(Subnets, EveryUnitComesToEveryWorkerInTime) {
  const params::Layout layout = layout_of("mlp:784-8-8-10");
  const Subnets subnets(layout, 4, 1);
  const std::size_t bias = layout.find("dense2.bias")->offset;
  std::vector<int> owners(8 * 4);
  constexpr int kRounds = 400;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (int worker = 0; worker < 4; ++worker) {
      const Mask mask = subnets.mask(worker, round);
      for (std::size_t i = 0; i < mask.size(); ++i) {
        const std::size_t at = mask.index(i);
        if (at >= bias && at < bias + 8) ++owners[(at - bias) * 4 + static_cast<std::size_t>(worker)];
      }
    }
  }
  // 100 expected; the deviation of one is below 9.
  for (const int count : owners) EXPECT_NEAR(count, kRounds / 4, 45);
}

// For any perceptron: what several own is what all own, parts have the layout of the narrower network, and nothing is owned twice.
TEST(SubnetsProperty, PartsAreDisjointButForWhatAllShare) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    RandomStream random(seed, 0, "subnets");
    const int workers = 1 + static_cast<int>(random.below(5));
    std::string text = random.below(3) == 0 ? "batchnorm batch, " : "";
    const std::size_t hidden = 1 + random.below(3);
    for (std::size_t layer = 0; layer < hidden; ++layer) {
      text +=
          fmt::format("dense {}{}, {}{}, ", static_cast<std::uint64_t>(workers) + random.below(9), random.below(2) == 0 ? " no bias" : "",
                      random.below(2) == 0 ? "batchnorm batch, " : "", random.below(2) == 0 ? "relu" : "tanh");
    }
    text += random.below(2) == 0 ? "dense 3" : "dense 3, batchnorm batch";
    SCOPED_TRACE(fmt::format("seed {}: {} for {} workers", seed, text, workers));
    const compute::Problem problem{.input = {2, 1, 3}, .outputs = 3, .labels = true};
    const compute::Network network = compute::parse_network(text, problem);
    const params::Layout layout = compute::layout_of(network);
    const Subnets subnets(layout, workers, seed);
    const Masks masks = subnets.deal(random.below(1000));  // Which checks the sums.
    std::vector<int> owners(layout.size());
    for (int worker = 0; worker < workers; ++worker) {
      const params::Layout part = subnets.part_layout(worker);
      EXPECT_EQ(part, compute::layout_of(compute::parse_network(compute::narrow(network, subnets.widths(worker)), problem)));
      ASSERT_EQ(masks[worker].size(), part.size());
      for (std::size_t i = 0; i < part.size(); ++i) ++owners[masks[worker].index(i)];
    }
    std::size_t owned = 0;
    for (const int count : owners) {
      owned += count > 0 ? 1 : 0;
      EXPECT_TRUE(count == 0 || count == 1 || count == workers);
    }
    EXPECT_EQ(masks.owned(), owned);
    for (std::size_t layer = 0; layer < hidden; ++layer) {
      std::vector<int> widths;
      for (int worker = 0; worker < workers; ++worker) widths.push_back(subnets.widths(worker)[layer]);
      const auto [least, most] = std::minmax_element(widths.begin(), widths.end());
      EXPECT_LE(*most - *least, 1);
    }
  }
}

}  // namespace
}  // namespace starling::strategy
