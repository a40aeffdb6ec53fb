// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/torch/flat_module.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::compute {
namespace {

namespace functional = torch::nn::functional;

// Counts the operations of convolutions and matrix products on this thread while it lives.
class OperationCount {
 public:
  OperationCount() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&start, &end).needsInputs(true).needsOutputs(true))) {
    total() = 0;
  }
  OperationCount(const OperationCount&) = delete;
  OperationCount& operator=(const OperationCount&) = delete;
  ~OperationCount() { at::removeCallback(handle_); }

  static double& total() {
    static thread_local double operations = 0;
    return operations;
  }

 private:
  // What each element of the output costs; known at the start, while the size of the output is known at the end.
  struct Cost : at::ObserverContext {
    double per_output = 0;
  };

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    const auto inputs = function.inputs();
    auto cost = std::make_unique<Cost>();
    if (name == "aten::_convolution") {
      const at::Tensor weight = inputs[1].toTensor();
      cost->per_output = 2.0 * static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0));
    } else if (name == "aten::mm" || name == "aten::bmm") {
      cost->per_output = 2.0 * static_cast<double>(inputs[0].toTensor().size(-1));
    } else if (name == "aten::addmm" || name == "aten::baddbmm") {
      cost->per_output = 2.0 * static_cast<double>(inputs[1].toTensor().size(-1));
    }
    return cost;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    const double per_output = static_cast<Cost*>(context)->per_output;
    if (function.outputs().empty()) return;  // It has thrown.
    if (per_output > 0) total() += per_output * static_cast<double>(function.outputs()[0].toTensor().numel());
  }

  at::CallbackHandle handle_;
};

// The first line of LibTorch's messages says what; the rest is its own stack.
std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

class TorchReplica final : public Replica {
 public:
  TorchReplica(FlatModule module, const Problem& problem, std::uint64_t seed, std::uint32_t rank)
      : module_(std::move(module)), problem_(problem), seed_(seed), rank_(rank) {
    sort_tensors();
    bind_tensors();
    try_out();
  }

  const params::Layout& layout() const override { return layout_; }
  std::span<float> weights() override { return weights_; }
  std::span<float> gradient() override { return gradient_; }
  double operations_per_sample() const override { return operations_; }
  std::string describe() const override { return fmt::format("torch: {}", module_.description); }

  double compute_gradient(const data::Batch& batch) override {
    try {
      return gradient_of(batch);
    } catch (const c10::Error& error) {
      fail(batch, error);
    }
  }

  Evaluation evaluate(const data::Batch& batch, std::span<std::int32_t> predictions) override {
    try {
      return evaluation_of(batch, predictions);
    } catch (const c10::Error& error) {
      fail(batch, error);
    }
  }

 private:
  // What a module refuses after it has been tried out depends on the batch: batch norm, for one, does not take a single sample.
  [[noreturn]] void fail(const data::Batch& batch, const c10::Error& error) const {
    throw UserError(fmt::format("the model '{}' cannot take a batch of {} samples: {}{}", module_.description, batch.size(),
                                first_line(error), batch.size() == 1 ? " Choose a --batch that leaves no remainder of one." : ""));
  }

  double gradient_of(const data::Batch& batch) {
    prepare_thread();
    set_training(true);
    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
    const torch::Tensor inputs = inputs_of(batch);
    const torch::Tensor outputs = draws_ ? forward_with_seed(inputs, batch.number) : module_.forward(inputs);
    const torch::Tensor loss =
        squared_error() ? torch::mse_loss(outputs, targets_of(batch)) : functional::cross_entropy(outputs, labels_of(batch));
    if (loss.requires_grad()) loss.backward();
    check_gradients();
    return loss.item().toDouble();
  }

  Evaluation evaluation_of(const data::Batch& batch, std::span<std::int32_t> predictions) {
    const torch::NoGradGuard no_gradient;
    prepare_thread();
    set_training(false);
    const torch::Tensor outputs = module_.forward(inputs_of(batch));
    Evaluation result{.samples = batch.size()};
    const torch::Tensor losses =
        squared_error()
            ? torch::mse_loss(outputs, targets_of(batch), at::Reduction::None).to(torch::kDouble).mean(1)
            : functional::cross_entropy(outputs, labels_of(batch), functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    result.loss_sum = losses.to(torch::kDouble).sum().item().toDouble();
    if (!problem_.labels) return result;
    labels_of(batch);
    const torch::Tensor classes = outputs.argmax(1).contiguous();
    const std::int64_t* predicted = classes.data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      result.correct += predicted[i] == labels_[i] ? 1 : 0;
      if (!predictions.empty()) predictions[i] = static_cast<std::int32_t>(predicted[i]);
    }
    return result;
  }

  // Drops tensors that are not there or were seen before (tied weights); frozen parameters become buffers; buffers of whole numbers stay
  // with the module.
  void sort_tensors() {
    std::set<const void*> seen;
    std::vector<NamedTensor> parameters;
    std::vector<NamedTensor> buffers;
    for (NamedTensor& named : module_.parameters) {
      if (!named.tensor.defined() || !seen.insert(named.tensor.unsafeGetTensorImpl()).second) continue;
      check_tensor(named);
      (named.tensor.requires_grad() ? parameters : buffers).push_back(named);
    }
    for (NamedTensor& named : module_.buffers) {
      if (!named.tensor.defined()) continue;
      if (!named.tensor.is_floating_point()) {
        counters_.push_back(named.tensor);
        continue;
      }
      if (!seen.insert(named.tensor.unsafeGetTensorImpl()).second) continue;
      check_tensor(named);
      buffers.push_back(named);
    }
    if (parameters.empty()) throw UserError(fmt::format("the model '{}' has no parameters to train", module_.description));
    module_.parameters = std::move(parameters);
    module_.buffers = std::move(buffers);
  }

  void check_tensor(const NamedTensor& named) const {
    const torch::Tensor& tensor = named.tensor;
    if (tensor.scalar_type() == torch::kFloat && tensor.device().is_cpu() && tensor.layout() == torch::kStrided && tensor.numel() > 0)
      return;
    throw UserError(
        fmt::format("the tensor '{}' of the model '{}' is {}, but it must be float32 on the CPU, dense, and not empty: convert the "
                    "model with .float().cpu()",
                    named.name, module_.description, tensor.toString()));
  }

  void bind_tensors() {
    for (const NamedTensor& named : module_.parameters) layout_.add(named.name, named.tensor.sizes().vec());
    for (const NamedTensor& named : module_.buffers) layout_.add(named.name, named.tensor.sizes().vec(), params::SliceKind::buffer);
    weights_.resize(layout_.size());
    gradient_.resize(layout_.parameter_count());
    const torch::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < layout_.slices().size(); ++i) {
      const params::Slice& slice = layout_.slices()[i];
      const bool trained = slice.kind == params::SliceKind::parameter;
      torch::Tensor& tensor = trained ? module_.parameters[i].tensor : module_.buffers[i - module_.parameters.size()].tensor;
      const torch::Tensor view = torch::from_blob(weights_.data() + slice.offset, tensor.sizes());
      view.copy_(tensor.data());
      tensor.set_data(view);
      if (trained) tensor.mutable_grad() = torch::from_blob(gradient_.data() + slice.offset, tensor.sizes());
    }
  }

  // Runs two samples through both forms of the module: the shape of the output, the operations, whether it draws random numbers.
  void try_out() {
    const torch::NoGradGuard no_gradient;
    prepare_thread();
    const std::vector<std::int64_t> shape{2, problem_.input.channels, problem_.input.height, problem_.input.width};
    const torch::Tensor inputs = torch::zeros(shape);
    try {
      set_training(false);
      const OperationCount count;
      const torch::Tensor outputs = module_.forward(inputs);
      operations_ = OperationCount::total() / 2;
      check_outputs(outputs, shape);
      const std::vector<float> saved = weights_;  // Training changes the running statistics, and counts.
      std::vector<torch::Tensor> counts;
      for (const torch::Tensor& counter : counters_) counts.push_back(counter.clone());
      set_training(true);
      draws_ = changes_generator([&] { module_.forward(inputs); });
      std::copy(saved.begin(), saved.end(), weights_.begin());
      for (std::size_t i = 0; i < counts.size(); ++i) counters_[i].copy_(counts[i]);
    } catch (const UserError&) {
      throw;
    } catch (const std::exception& error) {
      throw UserError(
          fmt::format("the model '{}' cannot be applied to inputs of shape {}: {}", module_.description, shape, first_line(error)));
    }
  }

  void check_outputs(const torch::Tensor& outputs, const std::vector<std::int64_t>& inputs) const {
    const std::vector<std::int64_t> expected{2, problem_.outputs};
    if (outputs.sizes() == expected && outputs.scalar_type() == torch::kFloat) return;
    throw UserError(fmt::format("the model '{}' turns inputs of shape {} into outputs of shape {}, but the data need {}",
                                module_.description, inputs, outputs.sizes().vec(), expected));
  }

  template <class Function>
  static bool changes_generator(const Function& function) {
    const std::lock_guard turn(generator_turn());
    const at::Generator& generator = at::detail::getDefaultCPUGenerator();
    const torch::Tensor before = generator.get_state();
    function();
    return !torch::equal(before, generator.get_state());
  }

  torch::Tensor forward_with_seed(const torch::Tensor& inputs, std::uint64_t number) {
    RandomStream stream(seed_, rank_, "torch");
    stream.seek(2 * number);
    const std::lock_guard turn(generator_turn());
    torch::manual_seed(stream.next_u64());
    return module_.forward(inputs);
  }

  void set_training(bool training) {
    if (training_known_ && training_ == training) return;
    module_.set_training(training);
    training_ = training;
    training_known_ = true;
  }

  // OpenMP and TorchScript keep these settings per thread.
  static void prepare_thread() {
    configure_torch();
    static thread_local bool prepared = false;
    if (prepared) return;
    at::set_num_threads(1);
    torch::jit::setGraphExecutorOptimize(false);
    prepared = true;
  }

  // Backward adds in place; a tensor of its own in place of our view would mean gradients that never arrive in the flat vector.
  void check_gradients() const {
    for (std::size_t i = 0; i < module_.parameters.size(); ++i) {
      const NamedTensor& named = module_.parameters[i];
      STARLING_CHECK(named.tensor.grad().data_ptr() == gradient_.data() + layout_.slices()[i].offset,
                     fmt::format("the gradient of '{}' has left the flat vector", named.name));
    }
  }

  torch::Tensor inputs_of(const data::Batch& batch) {
    const std::size_t size = batch.size() * problem_.input.size();
    if (inputs_.size() < size) inputs_.resize(size);
    data::copy_inputs(batch, std::span(inputs_).first(size));
    return torch::from_blob(
        inputs_.data(), {static_cast<std::int64_t>(batch.size()), problem_.input.channels, problem_.input.height, problem_.input.width});
  }

  bool squared_error() const { return module_.loss ? *module_.loss == LossKind::mse : !problem_.labels; }

  torch::Tensor labels_of(const data::Batch& batch) {
    if (labels_.size() < batch.size()) labels_.resize(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) labels_[i] = batch.samples->labels[batch.indices[i]];
    return torch::from_blob(labels_.data(), {static_cast<std::int64_t>(batch.size())}, torch::kLong);
  }

  torch::Tensor targets_of(const data::Batch& batch) {
    const auto width = static_cast<std::size_t>(problem_.outputs);
    if (targets_.size() < batch.size() * width) targets_.resize(batch.size() * width);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::uint32_t index = batch.indices[i];
      if (problem_.labels) {  // A class counts as 1 for its output and 0 for the others.
        std::fill_n(targets_.data() + i * width, width, 0.0F);
        targets_[i * width + static_cast<std::size_t>(batch.samples->labels[index])] = 1;
      } else {
        std::copy_n(batch.samples->targets.data() + index * width, width, targets_.data() + i * width);
      }
    }
    return torch::from_blob(targets_.data(), {static_cast<std::int64_t>(batch.size()), problem_.outputs});
  }

  FlatModule module_;
  Problem problem_;
  std::uint64_t seed_;
  std::uint32_t rank_;
  std::vector<torch::Tensor> counters_;  // Buffers of whole numbers, which stay with the module.
  params::Layout layout_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
  std::vector<float> inputs_;
  std::vector<float> targets_;
  std::vector<std::int64_t> labels_;
  double operations_ = 0;
  bool draws_ = false;
  bool training_ = false;
  bool training_known_ = false;
};

}  // namespace

std::mutex& generator_turn() {
  static std::mutex turn;
  return turn;
}

void configure_torch() {
  static std::once_flag once;
  std::call_once(once, [] {
    at::set_num_threads(1);
    try {
      at::set_num_interop_threads(1);
    } catch (const c10::Error&) {  // NOLINT(bugprone-empty-catch)
      // The program has set them before us. They serve nothing but the fork of TorchScript.
    }
    at::globalContext().setDeterministicAlgorithms(true, false);
    // TorchScript would rewrite a module after it has seen it run, and then give other bits than before.
    torch::jit::getProfilingMode() = false;
    torch::jit::getExecutorMode() = false;
    // Debian's LibTorch calls whichever BLAS is installed; OpenBLAS has threads of its own.
    if (auto* set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) set_threads(1);
  });
}

std::unique_ptr<Replica> make_flat_replica(FlatModule module, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
  configure_torch();
  return std::make_unique<TorchReplica>(std::move(module), problem, seed, rank);
}

}  // namespace starling::compute
