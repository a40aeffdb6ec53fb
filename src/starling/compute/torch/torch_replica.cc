// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/torch/torch_replica.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn.h>

#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "starling/base/error.h"
#include "starling/compute/network.h"
#include "starling/compute/torch/flat_module.h"

namespace starling::compute {
namespace {

// Puts LibTorch's modules one after the other.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(const Network& network) {
    for (const LayerSpec& layer : network.layers) add(layer);
    if (!flat_) network_->push_back("flatten", torch::nn::Flatten());
  }

  torch::nn::Sequential network() const { return network_; }

 private:
  void add(const LayerSpec& layer) {
    namespace nn = torch::nn;
    const torch::ExpandingArray<2> kernel({layer.kernel_height, layer.kernel_width});
    if (layer.kind == LayerKind::dense) flatten(layer);
    if (layer.kind == LayerKind::conv || layer.kind == LayerKind::maxpool || layer.kind == LayerKind::avgpool) unflatten(layer);
    switch (layer.kind) {
      case LayerKind::dense:
        push(layer, nn::Linear(nn::LinearOptions(static_cast<std::int64_t>(layer.input.size()), layer.outputs).bias(layer.bias)));
        break;
      case LayerKind::conv:
        push(layer,
             nn::Conv2d(
                 nn::Conv2dOptions(layer.input.channels, layer.outputs, kernel).stride(layer.stride).padding(layer.pad).bias(layer.bias)));
        break;
      case LayerKind::maxpool:
        push(layer, nn::MaxPool2d(nn::MaxPool2dOptions(kernel).stride(layer.stride).ceil_mode(layer.ceil)));
        break;
      case LayerKind::avgpool:
        push(layer, nn::AvgPool2d(nn::AvgPool2dOptions(kernel).stride(layer.stride).ceil_mode(layer.ceil)));
        break;
      case LayerKind::batchnorm:
        if (flat_) push(layer, nn::BatchNorm1d(nn::BatchNorm1dOptions(layer.input.channels).track_running_stats(!layer.batch_statistics)));
        if (!flat_) push(layer, nn::BatchNorm2d(nn::BatchNorm2dOptions(layer.input.channels).track_running_stats(!layer.batch_statistics)));
        break;
      case LayerKind::relu:
        push(layer, nn::ReLU());
        break;
      case LayerKind::tanh:
        push(layer, nn::Tanh());
        break;
      case LayerKind::sigmoid:
        push(layer, nn::Sigmoid());
        break;
      case LayerKind::dropout:
        push(layer, nn::Dropout(layer.rate));
        break;
    }
  }

  template <class Module>
  void push(const LayerSpec& layer, Module module) {
    network_->push_back(std::string(layer.name), std::move(module));
  }

  // Dense layers work on rows of numbers, the others on images.
  void flatten(const LayerSpec& layer) {
    if (!flat_) network_->push_back("before_" + layer.name, torch::nn::Flatten());
    flat_ = true;
  }
  void unflatten(const LayerSpec& layer) {
    if (flat_) {
      const std::vector<std::int64_t> shape{layer.input.channels, layer.input.height, layer.input.width};
      network_->push_back("before_" + layer.name, torch::nn::Unflatten(torch::nn::UnflattenOptions(1, shape)));
    }
    flat_ = false;
  }

  torch::nn::Sequential network_;
  bool flat_ = false;
};

// Our names for what batch norm calls running_mean and running_var.
std::string slice_name(std::string name) {
  for (const auto& [theirs, ours] : {std::pair{".running_mean", ".mean"}, std::pair{".running_var", ".variance"}}) {
    if (const std::size_t found = name.find(theirs); found != std::string::npos) name.replace(found, std::string::npos, ours);
  }
  return name;
}

FlatModule flatten(const std::shared_ptr<torch::nn::Module>& module, TorchForward forward, const std::string& description) {
  FlatModule result{
      .forward = std::move(forward), .set_training = [module](bool training) { module->train(training); }, .description = description};
  for (const auto& item : module->named_parameters()) result.parameters.push_back({item.key(), item.value()});
  for (const auto& item : module->named_buffers()) result.buffers.push_back({item.key(), item.value()});
  return result;
}

std::unique_ptr<Replica> load_script(const std::string& file, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
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

std::unique_ptr<Replica> make_torch_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored)) return load_script(model, problem, seed, rank);
  if (!is_network(model)) {
    throw UserError(fmt::format("there is no TorchScript file '{}', and no model of that name: the names are {}.{}", model,
                                fmt::join(model_names(), ", "), nearest_name_hint(model, model_names())));
  }
  const Network network = parse_network(model, problem);
  configure_torch();
  torch::nn::Sequential modules = [&] {
    const std::lock_guard turn(generator_turn());
    return NetworkBuilder(network).network();
  }();
  FlatModule module = flatten(
      modules.ptr(), [modules](const torch::Tensor& inputs) mutable { return modules->forward(inputs); }, model);
  module.loss = network.loss;
  for (NamedTensor& named : module.buffers) named.name = slice_name(named.name);
  std::unique_ptr<Replica> replica = make_flat_replica(std::move(module), problem, seed, rank);
  initialise(network, seed, replica->weights());
  return replica;
}

std::unique_ptr<Replica> make_module_replica(const std::shared_ptr<torch::nn::Module>& module, TorchForward forward, const Problem& problem,
                                             std::uint64_t seed, std::uint32_t rank, const std::string& description) {
  return make_flat_replica(flatten(module, std::move(forward), description), problem, seed, rank);
}

}  // namespace starling::compute
