// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/network.h"

#include <gtest/gtest.h>

#include <cmath>

#include "starling/base/error.h"

namespace starling::compute {
namespace {

const Problem kImages{.input = {1, 28, 28}, .outputs = 10, .labels = true};

std::string mistake(const std::string& model, const Problem& problem = kImages) {
  try {
    parse_network(model, problem);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void expect_mistake(const std::string& model, const std::string& part, const Problem& problem = kImages) {
  EXPECT_NE(mistake(model, problem).find(part), std::string::npos) << model << ": " << mistake(model, problem);
}

TEST(Network, NamedModelsHaveTheirPublishedSizes) {
  const Network lenet5 = parse_network("lenet5", kImages);
  EXPECT_EQ(layout_of(lenet5).size(), 61706U);
  EXPECT_DOUBLE_EQ(lenet5.operations_per_sample(), 833040);
  EXPECT_NEAR(lenet5.operations_per_sample() / 61706, 13.5, 0.01);  // The computation–communication ratio.
  EXPECT_EQ(layout_of(parse_network("cifar10-full", {.input = {3, 32, 32}, .outputs = 10, .labels = true})).size(), 89578U);
  EXPECT_EQ(layout_of(parse_network("mlp:784-1000-1000-10", kImages)).size(), 1796010U);
  EXPECT_EQ(layout_of(parse_network("softmax", kImages)).size(), 7850U);
  const Network quadratic = parse_network("quadratic", {.input = {20, 1, 1}, .outputs = 1, .labels = false});
  EXPECT_EQ(layout_of(quadratic).size(), 20U);
  EXPECT_EQ(quadratic.loss, LossKind::mse);
}

TEST(Network, ShapesAreWorkedOut) {
  const Network network =
      parse_network("conv 6 5x3 stride 2 pad 1, batchnorm, maxpool 3 stride 2 ceil, tanh, dropout 0.5, dense 10 no bias, mse", kImages);
  EXPECT_EQ(network.layers[0].output, (data::Shape{6, 13, 14}));
  EXPECT_EQ(network.layers[2].output, (data::Shape{6, 6, 7}));
  EXPECT_EQ(network.loss, LossKind::mse);
  std::vector<std::string> names;
  const params::Layout layout = layout_of(network);
  for (const params::Slice& slice : layout.slices()) names.push_back(params::describe(slice));
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight [6, 1, 5, 3]", "conv1.bias [6]", "norm1.weight [6]", "norm1.bias [6]",
                                             "dense1.weight [10, 252]", "buffer norm1.mean [6]", "buffer norm1.variance [6]"}));
}

TEST(Network, MistakesPointIntoTheText) {
  EXPECT_EQ(
      mistake("conv 6 5x5, relu, maxpol 2, dense 10"),
      "there is no layer 'maxpol'; there are dense, conv, maxpool, avgpool, relu, tanh, sigmoid, batchnorm, dropout, cross-entropy, mse. "
      "Did you mean 'maxpool'?\n"
      "  conv 6 5x5, relu, maxpol 2, dense 10\n"
      "                    ^^^^^^");
  EXPECT_EQ(mistake("maxpool 4, maxpool 4, conv 3 5x5, dense 10"),
            "the window of 'conv' is 5 wide, but its input is 1\n"
            "  maxpool 4, maxpool 4, conv 3 5x5, dense 10\n"
            "                        ^^^^^^^^^^");
}

TEST(Network, EveryMistakeIsNamed) {
  expect_mistake("dense 9", "the network has 9 outputs, but the data need 10");
  expect_mistake("dense", "'dense' needs the number of outputs");
  expect_mistake("dense x", "not 'x'");
  expect_mistake("dense 0", "from 1 to");
  expect_mistake("dense -3", "not '-3'");
  expect_mistake("dense 10 relu", "'dense' has no option 'relu'");
  expect_mistake("dense 10,", "a layer is missing");
  expect_mistake(", dense 10", "a layer is missing");
  expect_mistake("conv 6, dense 10", "needs the size of its window");
  expect_mistake("conv 6 5y5, dense 10", "not '5y5'");
  expect_mistake("conv 6 5x5 stride 0, dense 10", "the stride must be");
  expect_mistake("conv 6 5x5 pad, dense 10", "'conv' needs the padding");
  expect_mistake("conv 6 3x3 pad 3, dense 10", "lie outside the image");
  expect_mistake("conv 6 5x5 no, dense 10", "after 'no' comes 'bias'");
  expect_mistake("maxpool 2x3, dense 10", "square");
  expect_mistake("dropout 1, dense 10", "less than 1, not '1'");
  expect_mistake("dropout, dense 10", "needs the probability");
  expect_mistake("dropout nan, dense 10", "not 'nan'");
  expect_mistake("batchnorm running, dense 10", "'batchnorm' has no option 'running'");
  expect_mistake("mse, dense 10", "the loss must come last");
  expect_mistake("dense 10, mse 3", "'mse' has no option '3'");
  expect_mistake("mse", "at least one layer");
  expect_mistake("lenet", "Did you mean 'lenet5'?");
  expect_mistake("mlp:784-10-", "'mlp:784-10-' is not a perceptron");
  expect_mistake("mlp:700-10", "mlp:784-…-10");
  expect_mistake("dense 1677721, dense 10", "would have 1.32e+09 weights");
  expect_mistake("conv 16777216 1x1, dense 10", "would put out 1.32e+10 numbers per sample");
  expect_mistake("dense 1, cross-entropy", "use mse", {.input = {3, 1, 1}, .outputs = 1, .labels = false});
  expect_mistake("lenet5", "the window of 'maxpool' is 2 wide, but its input is 6", {.input = {3, 1, 1}, .outputs = 10, .labels = true});
  expect_mistake("lenet5", "10 outputs, but the data need 7", {.input = {1, 28, 28}, .outputs = 7, .labels = true});
}

TEST(Network, BatchStatisticsNeedNoBuffers) {
  const params::Layout layout = layout_of(parse_network("dense 20, batchnorm batch, relu, dense 30, batchnorm, relu, dense 10", kImages));
  EXPECT_EQ(layout.find("norm1.mean"), nullptr);
  EXPECT_EQ(layout.find("norm1.weight")->size, 20U);
  EXPECT_EQ(layout.find("norm2.mean")->size, 30U);
}

TEST(Network, NarrowKeepsAllButTheWidths) {
  const Network network = parse_network(
      "batchnorm batch, dense 20 no bias, batchnorm batch, relu, dropout 0.25, dense 30, sigmoid, batchnorm, dense 10", kImages);
  const std::string text = narrow(network, std::vector<int>{7, 3});
  EXPECT_EQ(text,
            "batchnorm batch, dense 7 no bias, batchnorm batch, relu, dropout 0.25, dense 3, sigmoid, batchnorm, dense 10, cross-entropy");
  // As wide as it was, it is the same network.
  const Network same = parse_network(narrow(network, std::vector<int>{20, 30}), kImages);
  EXPECT_EQ(layout_of(same), layout_of(network));
  EXPECT_EQ(same.operations_per_sample(), network.operations_per_sample());
  const Problem numbers{.input = {4, 1, 1}, .outputs = 2, .labels = false};
  EXPECT_EQ(narrow(parse_network("mlp:4-6-2", numbers), std::vector<int>{3}), "dense 3, relu, dense 2, mse");
  EXPECT_EQ(narrow(parse_network("maxpool 3 stride 2 ceil, avgpool 2, dense 20, tanh, dense 10", kImages), std::vector<int>{5}),
            "maxpool 3 stride 2 ceil, avgpool 2 stride 2, dense 5, tanh, dense 10, cross-entropy");
  EXPECT_EQ(narrow(parse_network("softmax", kImages), std::vector<int>{}), "dense 10, cross-entropy");
}

TEST(Network, NarrowRefusesWhatItCannotMakeNarrower) {
  EXPECT_THROW((void)narrow(parse_network("lenet5", kImages), std::vector<int>{3, 3}), BrokenInvariant);
  EXPECT_THROW((void)narrow(parse_network("mlp:784-20-10", kImages), std::vector<int>{}), BrokenInvariant);
  EXPECT_THROW((void)narrow(parse_network("mlp:784-20-10", kImages), std::vector<int>{0}), BrokenInvariant);
}

TEST(Network, FirstWeightsDependOnTheSeedAloneAndStayInBounds) {
  const Network network = parse_network("lenet5", kImages);
  std::vector<float> first(61706);
  std::vector<float> again(61706);
  std::vector<float> other(61706);
  initialise(network, 1, first);
  initialise(network, 1, again);
  initialise(network, 2, other);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  const params::Layout layout = layout_of(network);
  const params::Slice& slice = *layout.find("dense1.weight");
  double largest = 0;
  double sum = 0;
  for (std::size_t i = 0; i < slice.size; ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(first[slice.offset + i])));
    sum += first[slice.offset + i];
  }
  EXPECT_LE(largest, 1 / 20.0);
  EXPECT_GT(largest, 0.99 / 20.0);
  EXPECT_NEAR(sum / static_cast<double>(slice.size), 0, 0.001);
}

}  // namespace
}  // namespace starling::compute
