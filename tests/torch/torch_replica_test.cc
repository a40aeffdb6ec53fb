// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/torch/torch_replica.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/compute/torch/torch_module.h"
#include "starling/compute/torch/torch_plugin.h"
#include "starling/optim/optimiser.h"

namespace starling::compute {
namespace {

using data::Batch;
using data::Samples;

// Random images whose class is the brightest of the first pixels, or whose answers are sums of the first pixels.
Samples images(data::Shape shape, std::size_t count, int classes, int outputs) {
  Samples samples{.shape = shape, .count = count, .classes = classes, .outputs = outputs};
  samples.standardisation.resize(static_cast<std::size_t>(shape.channels));
  RandomStream stream(5, 0, "images");
  for (std::size_t i = 0; i < count * shape.size(); ++i) samples.floats.push_back(static_cast<float>(stream.normal()));
  for (std::size_t i = 0; i < count; ++i) {
    const float* first = samples.floats.data() + i * shape.size();
    if (classes > 0) samples.labels.push_back(static_cast<std::int32_t>(std::max_element(first, first + classes) - first));
    for (int j = 0; j < outputs; ++j) samples.targets.push_back(first[j] + 0.5F * first[j + 1]);
  }
  return samples;
}

std::vector<std::uint32_t> first_indices(std::size_t count) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

// The gradient of every seventh parameter against the slope of the loss. Only for models without dropout.
void expect_slopes(Replica& replica, const Batch& batch) {
  replica.compute_gradient(batch);
  const std::vector<float> gradient = copy_of(replica.gradient());
  const std::vector<float> before = copy_of(replica.weights());
  constexpr float kStep = 1e-2F;
  for (std::size_t i = 0; i < gradient.size(); i += 7) {
    const auto loss_at = [&](float weight) {
      std::copy(before.begin(), before.end(), replica.weights().begin());
      replica.weights()[i] = weight;
      return replica.compute_gradient(batch);
    };
    const double slope = (loss_at(before[i] + kStep) - loss_at(before[i] - kStep)) / (2.0 * kStep);
    EXPECT_NEAR(gradient[i], slope, 2e-3 + 0.02 * std::abs(slope)) << i;
  }
}

TEST(TorchReplica, GradientsAreTheSlopesOfTheLoss) {
  const std::vector<std::uint32_t> indices = first_indices(5);
  const Samples classes = images({2, 6, 5}, 8, 3, 0);
  const auto network = make_torch_replica("conv 3 3x2 stride 2 pad 1, batchnorm, tanh, avgpool 2 ceil, dense 4, sigmoid, dense 3",
                                          Problem::of(classes), 1, 0);
  expect_slopes(*network, {.samples = &classes, .indices = indices});
  const Samples numbers = images({1, 1, 6}, 8, 0, 1);
  const auto quadratic = make_torch_replica("quadratic", Problem::of(numbers), 1, 0);
  EXPECT_EQ(quadratic->layout().parameter_count(), 6U);
  expect_slopes(*quadratic, {.samples = &numbers, .indices = indices});
}

TEST(TorchReplica, NamedModelsHaveTheirSlicesAndOperations) {
  const Problem mnist{.input = {1, 28, 28}, .outputs = 10};
  const auto lenet = make_torch_replica("lenet5", mnist, 1, 0);
  std::vector<std::string> names;
  for (const params::Slice& slice : lenet->layout().slices()) names.push_back(params::describe(slice));
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight [6, 1, 5, 5]", "conv1.bias [6]", "conv2.weight [16, 6, 5, 5]", "conv2.bias [16]",
                                             "dense1.weight [120, 400]", "dense1.bias [120]", "dense2.weight [84, 120]", "dense2.bias [84]",
                                             "dense3.weight [10, 84]", "dense3.bias [10]"}));
  EXPECT_EQ(lenet->operations_per_sample(), 833040);
  EXPECT_EQ(lenet->describe(), "torch: lenet5");
  EXPECT_EQ(make_torch_replica("mlp:784-1000-1000-10", mnist, 1, 0)->layout().size(), 1796010U);
  EXPECT_EQ(make_torch_replica("softmax", mnist, 1, 0)->operations_per_sample(), 2 * 7840);
  EXPECT_EQ(make_torch_replica("cifar10-full", {.input = {3, 32, 32}, .outputs = 10}, 1, 0)->layout().size(), 89578U);
}

TEST(TorchReplica, FirstWeightsAreDrawnSliceBySlice) {
  const auto replica = make_torch_replica("lenet5", {.input = {1, 28, 28}, .outputs = 10}, 7, 3);
  RandomStream stream(7, 0, "init");
  const std::span<float> weights = replica->weights();
  for (std::size_t i = 0; i < 156; ++i) EXPECT_EQ(weights[i], static_cast<float>(1 / std::sqrt(25.0) * (2 * stream.uniform() - 1))) << i;
  for (std::size_t i = 156; i < 2572; ++i)
    EXPECT_EQ(weights[i], static_cast<float>(1 / std::sqrt(150.0) * (2 * stream.uniform() - 1))) << i;
}

TEST(TorchReplica, BuffersTravelInTheirSlices) {
  const Samples samples = images({2, 4, 4}, 8, 3, 0);
  const auto replica = make_torch_replica("conv 3 1x1, batchnorm, dense 5, batchnorm, dense 3", Problem::of(samples), 1, 0);
  const params::Layout& layout = replica->layout();
  std::vector<std::string> buffers;
  for (const params::Slice& slice : layout.slices()) {
    if (slice.kind == params::SliceKind::buffer) buffers.push_back(params::describe(slice));
  }
  EXPECT_EQ(buffers, (std::vector<std::string>{"buffer norm1.mean [3]", "buffer norm1.variance [3]", "buffer norm2.mean [5]",
                                               "buffer norm2.variance [5]"}));
  EXPECT_EQ(replica->gradient().size() + 16, replica->weights().size());
  const auto part = [&](const char* name) { return params::Layout::part(replica->weights(), *layout.find(name)); };
  EXPECT_EQ(copy_of(part("norm1.weight")), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(copy_of(part("norm1.bias")), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(copy_of(part("norm1.mean")), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(copy_of(part("norm1.variance")), (std::vector<float>{1, 1, 1}));
  const std::vector<std::uint32_t> indices = first_indices(8);
  const Batch batch{.samples = &samples, .indices = indices};
  replica->compute_gradient(batch);
  EXPECT_NE(part("norm1.mean")[0], 0);
  // Written from outside, they are what evaluation uses; evaluation itself leaves them alone.
  const double before = replica->evaluate(batch, {}).loss_sum;
  const std::vector<float> weights = copy_of(replica->weights());
  EXPECT_EQ(replica->evaluate(batch, {}).loss_sum, before);
  EXPECT_EQ(copy_of(replica->weights()), weights);
  part("norm2.mean")[0] += 1;
  EXPECT_NE(replica->evaluate(batch, {}).loss_sum, before);
}

TEST(TorchReplica, EvaluationCountsAndPredicts) {
  const Samples samples = images({1, 1, 4}, 9, 3, 0);
  const auto replica = make_torch_replica("softmax", Problem::of(samples), 1, 0);
  // Weights that pick the answer out of the input.
  std::fill(replica->weights().begin(), replica->weights().end(), 0.0F);
  for (std::size_t i = 0; i < 3; ++i) replica->weights()[i * 4 + i] = 50;
  const std::vector<std::uint32_t> indices{8, 2, 5, 0, 7};
  std::vector<std::int32_t> predictions(5, -1);
  const Batch batch{.samples = &samples, .indices = indices};
  const Evaluation result = replica->evaluate(batch, predictions);
  EXPECT_EQ(result.correct, 5U);
  EXPECT_EQ(result.samples, 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(predictions[i], samples.labels[indices[i]]);
  replica->weights()[3 * 4] += 1000;  // The bias of class 0.
  EXPECT_LT(replica->evaluate(batch, {}).correct, 5U);
  std::fill(replica->weights().begin(), replica->weights().end(), 0.0F);
  EXPECT_NEAR(replica->evaluate(batch, {}).loss_sum, 5 * std::log(3.0), 1e-5);
  EXPECT_NEAR(replica->compute_gradient(batch), std::log(3.0), 1e-6);
}

double train(Replica& replica, const Samples& samples, int steps, std::vector<double>* losses = nullptr) {
  const auto optimiser = optim::make_optimiser({.name = "momentum"}, replica.layout());
  const std::vector<std::uint32_t> indices = first_indices(samples.count);
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const std::size_t size = 7 + static_cast<std::size_t>(step) % 3;
    const std::size_t start = static_cast<std::size_t>(step) * 5 % (samples.count - size);
    loss = replica.compute_gradient(
        {.samples = &samples, .indices = std::span(indices).subspan(start, size), .number = static_cast<std::uint64_t>(step)});
    if (losses != nullptr) losses->push_back(loss);
    optimiser->step(replica.weights(), replica.gradient(), 0.02);
  }
  return loss;
}

TEST(TorchReplica, TrainingLowersTheLoss) {
  const Samples samples = images({1, 8, 8}, 60, 3, 0);
  const auto replica = make_torch_replica("mlp:64-20-3", Problem::of(samples), 1, 0);
  const std::vector<std::uint32_t> indices = first_indices(60);
  const Batch all{.samples = &samples, .indices = indices};
  const double before = replica->evaluate(all, {}).loss_sum;
  train(*replica, samples, 100);
  EXPECT_LT(replica->evaluate(all, {}).loss_sum, 0.5 * before);
}

constexpr const char* kWithDropout = "conv 4 3x3, batchnorm, relu, dropout 0.3, dense 3";

TEST(TorchReplica, SameSeedGivesTheSameBitsAlsoOnThreadsAtTheSameTime) {
  const Samples samples = images({1, 8, 8}, 60, 3, 0);
  const auto weights_after_training = [&](std::uint64_t seed, std::uint32_t rank) {
    const auto replica = make_torch_replica(kWithDropout, Problem::of(samples), seed, rank);
    train(*replica, samples, 20);
    return copy_of(replica->weights());
  };
  const std::vector<float> alone = weights_after_training(1, 0);
  std::vector<std::vector<float>> together(3);
  std::vector<std::thread> threads;
  for (std::vector<float>& result : together) threads.emplace_back([&] { result = weights_after_training(1, 0); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& result : together) EXPECT_EQ(result, alone);
  EXPECT_NE(weights_after_training(2, 0), alone);
  EXPECT_NE(weights_after_training(1, 1), alone);  // Dropout is the rank's own.
}

TEST(TorchReplica, DropoutIsAFunctionOfTheBatchNumber) {
  const Samples samples = images({1, 8, 8}, 60, 3, 0);
  const auto replica = make_torch_replica(kWithDropout, Problem::of(samples), 1, 0);
  const std::vector<std::uint32_t> indices = first_indices(20);
  const auto loss_of = [&](std::uint64_t number) {
    return replica->compute_gradient({.samples = &samples, .indices = indices, .number = number});
  };
  const double first = loss_of(1);
  EXPECT_NE(loss_of(2), first);
  EXPECT_EQ(loss_of(1), first);
}

struct TiedNet : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor hidden = torch::tanh(normal->forward(first->forward(x.flatten(1))));
    return torch::matmul(hidden, head) + frozen;
  }

  torch::nn::Linear first{register_module("first", torch::nn::Linear(4, 4))};
  torch::nn::BatchNorm1d normal{register_module("normal", torch::nn::BatchNorm1d(4))};
  torch::Tensor head{register_parameter("head", torch::randn({3, 4}).t())};  // Not contiguous.
  torch::Tensor frozen{register_parameter("frozen", torch::ones({3}), false)};
};

TEST(TorchReplica, AModuleOfTheUserBecomesViewsOfTheFlatVectors) {
  const Samples samples = images({1, 2, 2}, 8, 3, 0);
  const auto net = std::make_shared<TiedNet>();
  const torch::Tensor head_before = net->head.detach().clone();
  const auto replica = make_module_replica(net, Problem::of(samples), 1, 0);
  const params::Layout& layout = replica->layout();
  const params::Slice* head = layout.find("head");
  ASSERT_NE(head, nullptr);
  EXPECT_TRUE(torch::equal(net->head, head_before));
  EXPECT_EQ(net->head.data_ptr<float>(), replica->weights().data() + head->offset);
  EXPECT_EQ(net->head.grad().data_ptr<float>(), replica->gradient().data() + head->offset);
  EXPECT_EQ(net->normal->running_mean.data_ptr<float>(), replica->weights().data() + layout.find("normal.running_mean")->offset);
  EXPECT_EQ(layout.find("frozen")->kind, params::SliceKind::buffer);
  EXPECT_EQ(layout.find("normal.num_batches_tracked"), nullptr);
  const std::vector<std::uint32_t> indices = first_indices(8);
  expect_slopes(*replica, {.samples = &samples, .indices = indices});
  EXPECT_EQ(net->head.grad().data_ptr<float>(), replica->gradient().data() + head->offset);
}

class ScriptFile : public testing::Test {
 protected:
  ScriptFile() : folder_(std::filesystem::path(testing::TempDir()) / ("starling_script_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ScriptFile() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // A small network with batch norm and dropout, as Python would have saved it.
  std::string save_network() const {
    torch::jit::Module module("network");
    module.register_parameter("weight", torch::linspace(-0.5, 0.5, 12).reshape({3, 4}).requires_grad_(), false);
    module.register_parameter("bias", torch::zeros({3}).requires_grad_(), false);
    module.register_buffer("running_mean", torch::zeros({3}));
    module.register_buffer("running_var", torch::ones({3}));
    module.register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
    module.register_attribute("training", c10::BoolType::get(), true);
    module.define(R"(
      def forward(self, x):
        x = torch.linear(x.flatten(1), self.weight, self.bias)
        x = torch.batch_norm(x, None, None, self.running_mean, self.running_var, self.training, 0.1, 1e-5, False)
        return torch.dropout(x, 0.25, self.training)
    )");
    module.save(path("network.pt"));
    return path("network.pt");
  }

  static std::string message_for(const std::string& model, const Problem& problem) {
    try {
      make_torch_replica(model, problem, 1, 0);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(ScriptFile, BecomesAReplicaWithItsWeights) {
  const Samples samples = images({1, 2, 2}, 60, 3, 0);
  const std::string file = save_network();
  const auto replica = make_torch_replica(file, Problem::of(samples), 1, 0);
  EXPECT_EQ(replica->layout().size(), 12U + 3 + 6);
  EXPECT_EQ(replica->layout().parameter_count(), 15U);
  EXPECT_EQ(replica->layout().find("running_var")->kind, params::SliceKind::buffer);
  EXPECT_FLOAT_EQ(replica->weights()[0], -0.5F);
  EXPECT_FLOAT_EQ(replica->weights()[11], 0.5F);
  EXPECT_EQ(replica->operations_per_sample(), 24);
  std::vector<double> losses;
  train(*replica, samples, 60, &losses);
  EXPECT_LT(losses.back(), losses.front());
  const auto again = make_torch_replica(file, Problem::of(samples), 1, 0);
  train(*again, samples, 60);
  EXPECT_EQ(copy_of(again->weights()), copy_of(replica->weights()));
}

// A run that is resumed makes a new replica; it must go on as one that has already run for a while.
TEST_F(ScriptFile, ANewReplicaContinuesAnOldOneBitForBit) {
  const Samples samples = images({1, 2, 2}, 60, 3, 0);
  const std::string file = save_network();
  const auto old = make_torch_replica(file, Problem::of(samples), 1, 0);
  train(*old, samples, 30);
  const auto fresh = make_torch_replica(file, Problem::of(samples), 1, 0);
  std::copy(old->weights().begin(), old->weights().end(), fresh->weights().begin());
  train(*old, samples, 5);
  train(*fresh, samples, 5);
  EXPECT_EQ(copy_of(fresh->weights()), copy_of(old->weights()));
}

TEST_F(ScriptFile, MissingDamagedOrUnfitIsTheUsersMistake) {
  const Problem problem{.input = {1, 2, 2}, .outputs = 3};
  EXPECT_NE(message_for("lenet6", problem).find("Did you mean 'lenet5'?"), std::string::npos) << message_for("lenet6", problem);
  EXPECT_NE(message_for(path("absent.pt"), problem).find("there is no TorchScript file"), std::string::npos);
  const std::string file = save_network();
  EXPECT_EQ(message_for(file, problem), "");
  EXPECT_NE(message_for(file, {.input = {1, 2, 2}, .outputs = 4}).find("outputs of shape [2, 3]"), std::string::npos);
  EXPECT_NE(message_for(file, {.input = {1, 3, 3}, .outputs = 3}).find("cannot be applied to inputs of shape [2, 1, 3, 3]"),
            std::string::npos);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  EXPECT_NE(message_for(file, problem).find("is not a TorchScript file, or is damaged"), std::string::npos);
  std::ofstream(path("text.pt")) << "no module";
  EXPECT_NE(message_for(path("text.pt"), problem).find("is not a TorchScript file, or is damaged"), std::string::npos);
}

TEST_F(ScriptFile, NamedModelsThatDoNotFitAreTheUsersMistake) {
  const Problem problem{.input = {1, 4, 4}, .outputs = 3};
  EXPECT_NE(message_for("mlp:15-3", problem).find("mlp:16-…-3"), std::string::npos);
  EXPECT_NE(message_for("mlp:16-4", problem).find("mlp:16-…-3"), std::string::npos);
  for (const char* wrong : {"mlp:", "mlp:16", "mlp:16-x-3", "mlp:16--3", "mlp:16-0-3", "mlp:16-3-"})
    EXPECT_NE(message_for(wrong, problem), "") << wrong;
  EXPECT_NE(message_for("quadratic", problem).find("1 outputs, but the data need 3"), std::string::npos);
  EXPECT_NE(message_for("lenet5", {.input = {1, 4, 4}, .outputs = 3}).find("the window of 'conv' is 5 wide"), std::string::npos);
}

TEST(TorchPlugin, GivesTheSameAsLinking) {
  const Problem problem{.input = {1, 28, 28}, .outputs = 10};
  const auto linked = make_torch_replica("lenet5", problem, 1, 0);
  const auto loaded = load_torch_replica("lenet5", problem, 1, 0);
  EXPECT_EQ(loaded->layout(), linked->layout());
  EXPECT_EQ(copy_of(loaded->weights()), copy_of(linked->weights()));
  EXPECT_THROW(load_torch_replica("lenet6", problem, 1, 0), UserError);
}

}  // namespace
}  // namespace starling::compute
