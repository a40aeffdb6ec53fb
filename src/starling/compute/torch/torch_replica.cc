// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/torch/torch_replica.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/compute/torch/flat_module.h"

namespace starling::compute {
namespace {

using Kind = Step::Kind;

// Puts LibTorch's modules one after the other, following the shape that passes through them.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(const Problem& problem) : shape_(problem.input) {}

  void add(const Step& step) {
    namespace nn = torch::nn;
    const torch::ExpandingArray<2> kernel({step.kernel_height, step.kernel_width});
    switch (step.kind) {
      case Kind::dense:
        add_dense(step);
        break;
      case Kind::conv:
        network_->push_back(
            name("conv"),
            nn::Conv2d(nn::Conv2dOptions(shape_.channels, step.outputs, kernel).stride(step.stride).padding(step.pad).bias(step.bias)));
        shrink(step);
        shape_.channels = step.outputs;
        break;
      case Kind::maxpool:
        network_->push_back(name("maxpool"),
                            nn::MaxPool2d(nn::MaxPool2dOptions(kernel).stride(step.stride).padding(step.pad).ceil_mode(step.ceil)));
        shrink(step);
        break;
      case Kind::avgpool:
        network_->push_back(
            name("avgpool"),
            nn::AvgPool2d(
                nn::AvgPool2dOptions(kernel).stride(step.stride).padding(step.pad).ceil_mode(step.ceil).count_include_pad(false)));
        shrink(step);
        break;
      case Kind::batchnorm:
        if (flat_) {
          network_->push_back(name("norm"), nn::BatchNorm1d(static_cast<std::int64_t>(shape_.size())));
        } else {
          network_->push_back(name("norm"), nn::BatchNorm2d(shape_.channels));
        }
        break;
      case Kind::relu:
        network_->push_back(name("relu"), nn::ReLU());
        break;
      case Kind::tanh:
        network_->push_back(name("tanh"), nn::Tanh());
        break;
      case Kind::sigmoid:
        network_->push_back(name("sigmoid"), nn::Sigmoid());
        break;
      case Kind::dropout:
        network_->push_back(name("dropout"), nn::Dropout(step.rate));
        break;
    }
  }

  torch::nn::Sequential network() const { return network_; }

 private:
  std::string name(const std::string& kind) { return fmt::format("{}{}", kind, ++counts_[kind]); }

  void add_dense(const Step& step) {
    if (!flat_) network_->push_back(name("flatten"), torch::nn::Flatten());
    flat_ = true;
    network_->push_back(
        name("dense"), torch::nn::Linear(torch::nn::LinearOptions(static_cast<std::int64_t>(shape_.size()), step.outputs).bias(step.bias)));
    shape_ = {.channels = step.outputs};
  }

  void shrink(const Step& step) {
    if (flat_) throw UserError("a convolution or pooling cannot come after a dense layer");
    shape_.height = extent(step, shape_.height, step.kernel_height);
    shape_.width = extent(step, shape_.width, step.kernel_width);
  }

  static int extent(const Step& step, int size, int kernel) {
    const int room = size + 2 * step.pad - kernel;
    if (room < 0) throw UserError(fmt::format("a window of {} does not fit an image of {} with padding {}", kernel, size, step.pad));
    int result = room / step.stride + 1;
    // A window that hangs over counts if it starts inside the image or its left padding.
    if (step.ceil && room % step.stride != 0 && result * step.stride < size + step.pad) ++result;
    return result;
  }

  torch::nn::Sequential network_;
  data::Shape shape_;
  bool flat_ = false;
  std::map<std::string, int> counts_;
};

// Our names for what batch norm calls running_mean and running_var.
std::string slice_name(std::string name) {
  for (const auto& [theirs, ours] : {std::pair{".running_mean", ".mean"}, std::pair{".running_var", ".variance"}}) {
    if (const std::size_t found = name.find(theirs); found != std::string::npos) name.replace(found, std::string::npos, ours);
  }
  return name;
}

// See make_torch_replica for the rule. A bias follows its weight, whose inputs it shares.
void initialise(Replica& replica, std::uint64_t seed) {
  RandomStream stream(seed, 0, "init");
  double bound = 0;
  for (const params::Slice& slice : replica.layout().slices()) {
    if (slice.kind == params::SliceKind::buffer || slice.name.starts_with("norm")) continue;
    if (slice.shape.size() > 1) bound = 1 / std::sqrt(static_cast<double>(slice.size) / static_cast<double>(slice.shape[0]));
    for (float& weight : params::Layout::part(replica.weights(), slice)) weight = static_cast<float>(bound * (2 * stream.uniform() - 1));
  }
}

Step dense(int outputs, bool bias = true) { return {.kind = Kind::dense, .outputs = outputs, .bias = bias}; }
Step conv(int outputs, int kernel, int pad) {
  return {.kind = Kind::conv, .outputs = outputs, .kernel_height = kernel, .kernel_width = kernel, .pad = pad};
}
Step pool(Kind kind, int kernel, int stride, bool ceil) {
  return {.kind = kind, .kernel_height = kernel, .kernel_width = kernel, .stride = stride, .ceil = ceil};
}
const Step kRelu{.kind = Kind::relu};

std::vector<Step> mlp_steps(const std::string& name, const Problem& problem) {
  std::vector<int> sizes;
  const char* at = name.data() + 4;
  const char* end = name.data() + name.size();
  for (;;) {
    int size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || (next != end && *next != '-')) {
      throw UserError(fmt::format("'{}' is not a multi-layer perceptron: write the sizes of its layers, as in mlp:784-1000-1000-10", name));
    }
    sizes.push_back(size);
    if (next == end) break;
    at = next + 1;
  }
  if (sizes.size() < 2 || static_cast<std::size_t>(sizes.front()) != problem.input.size() || sizes.back() != problem.outputs) {
    throw UserError(fmt::format("'{}' does not fit the data: it must begin with {} (values per sample) and end with {} (outputs)", name,
                                problem.input.size(), problem.outputs));
  }
  std::vector<Step> steps;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    if (i > 1) steps.push_back(kRelu);
    steps.push_back(dense(sizes[i]));
  }
  return steps;
}

FlatModule flatten(const std::shared_ptr<torch::nn::Module>& module, TorchForward forward, const std::string& description) {
  FlatModule result{
      .forward = std::move(forward), .set_training = [module](bool training) { module->train(training); }, .description = description};
  for (const auto& item : module->named_parameters()) result.parameters.push_back({item.key(), item.value()});
  for (const auto& item : module->named_buffers()) result.buffers.push_back({item.key(), item.value()});
  return result;
}

std::unique_ptr<Replica> load_script(const std::string& file, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    const std::vector<std::string> names{"lenet5", "mlp:784-1000-1000-10", "softmax", "cifar10-full", "quadratic"};
    throw UserError(fmt::format("there is no TorchScript file '{}', and no model of that name: the names are {}.{}", file,
                                fmt::join(names, ", "), nearest_name_hint(file, names)));
  }
  configure_torch();
  FlatModule module{.description = file};
  try {
    const auto script = std::make_shared<torch::jit::Module>(torch::jit::load(file, torch::kCPU));
    module.forward = [script](const torch::Tensor& inputs) { return script->forward({inputs}).toTensor(); };
    module.set_training = [script](bool training) { script->train(training); };
    for (const auto& item : script->named_parameters()) module.parameters.push_back({item.name, item.value});
    for (const auto& item : script->named_buffers()) module.buffers.push_back({item.name, item.value});
  } catch (const std::exception&) {
    throw UserError(fmt::format(
        "'{}' is not a TorchScript file, or is damaged: write it in Python with torch.jit.script(model).save(\"{}\")", file, file));
  }
  return make_flat_replica(std::move(module), problem, seed, rank);
}

}  // namespace

std::vector<Step> named_steps(const std::string& name, const Problem& problem) {
  if (name == "lenet5") {
    const Step half = pool(Kind::maxpool, 2, 2, false);
    return {conv(6, 5, 2), kRelu, half, conv(16, 5, 0), kRelu, half, dense(120), kRelu, dense(84), kRelu, dense(problem.outputs)};
  }
  if (name == "cifar10-full") {
    const Step average = pool(Kind::avgpool, 3, 2, true);
    return {conv(32, 5, 2), pool(Kind::maxpool, 3, 2, true), kRelu, conv(32, 5, 2), kRelu, average, conv(64, 5, 2), kRelu,
            average,        dense(problem.outputs)};
  }
  if (name == "softmax") return {dense(problem.outputs)};
  if (name == "quadratic") {
    if (problem.labels) throw UserError("the model quadratic needs data whose answers are numbers, but these are classes; try softmax");
    return {dense(problem.outputs, false)};
  }
  if (name.starts_with("mlp:")) return mlp_steps(name, problem);
  return {};
}

std::unique_ptr<Replica> make_torch_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
  const std::vector<Step> steps = named_steps(model, problem);
  if (steps.empty()) return load_script(model, problem, seed, rank);
  return make_torch_replica(steps, problem, seed, rank, model);
}

std::unique_ptr<Replica> make_torch_replica(const std::vector<Step>& steps, const Problem& problem, std::uint64_t seed, std::uint32_t rank,
                                            const std::string& description) {
  configure_torch();
  NetworkBuilder builder(problem);
  {
    const std::lock_guard turn(generator_turn());
    for (const Step& step : steps) builder.add(step);
  }
  torch::nn::Sequential network = builder.network();
  FlatModule module = flatten(
      network.ptr(), [network](const torch::Tensor& inputs) mutable { return network->forward(inputs); }, description);
  for (NamedTensor& named : module.buffers) named.name = slice_name(named.name);
  std::unique_ptr<Replica> replica = make_flat_replica(std::move(module), problem, seed, rank);
  initialise(*replica, seed);
  return replica;
}

std::unique_ptr<Replica> make_module_replica(const std::shared_ptr<torch::nn::Module>& module, TorchForward forward, const Problem& problem,
                                             std::uint64_t seed, std::uint32_t rank, const std::string& description) {
  return make_flat_replica(flatten(module, std::move(forward), description), problem, seed, rank);
}

}  // namespace starling::compute
