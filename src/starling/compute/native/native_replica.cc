// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/native/native_replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/aligned_floats.h"
#include "starling/base/error.h"
#include "starling/compute/native/blas.h"
#include "starling/compute/native/layer.h"

namespace starling::compute::native {
namespace {

bool in_place(LayerKind kind) {
  return kind == LayerKind::relu || kind == LayerKind::tanh || kind == LayerKind::sigmoid || kind == LayerKind::batchnorm ||
         kind == LayerKind::dropout;
}

bool is_activation(LayerKind kind) { return kind == LayerKind::relu || kind == LayerKind::tanh || kind == LayerKind::sigmoid; }

// The largest of some numbers cut off at zero is the largest, cut off at zero: relu after maxpool has fewer to cut off.
std::vector<LayerSpec> reordered(std::vector<LayerSpec> layers) {
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    if (layers[i].kind != LayerKind::relu || layers[i + 1].kind != LayerKind::maxpool) continue;
    std::swap(layers[i], layers[i + 1]);
    layers[i + 1].input = layers[i + 1].output = layers[i].output;
  }
  return layers;
}

// Layers in a row that take a batch either group by group or whole.
struct Stage {
  bool whole_batch = false;
  std::vector<Layer*> layers;
};

class NativeReplica final : public Replica {
 public:
  NativeReplica(const Network& network, std::uint64_t seed, std::uint32_t rank, const NativeOptions& options)
      : options_(options),
        network_(network),
        specs_(reordered(network.layers)),
        layout_(layout_of(network)),
        weights_(layout_.size()),
        gradient_(layout_.parameter_count()) {
    initialise(network_, seed, weights());
    build(seed, rank);
  }

  const params::Layout& layout() const override { return layout_; }
  std::span<float> weights() override { return {weights_.data(), layout_.size()}; }
  std::span<float> gradient() override { return {gradient_.data(), layout_.parameter_count()}; }
  double operations_per_sample() const override { return network_.operations_per_sample(); }
  std::string describe() const override { return fmt::format("native: {}", network_.text); }

  double compute_gradient(const data::Batch& batch) override {
    const Pass pass{.batch = &batch, .training = true};
    begin(pass);
    for (std::size_t i = 0; i + 1 < stages_.size(); ++i) forward(stages_[i], pass);
    // In the last stage a group goes forward and back at once, while all of it is in the cache.
    const Stage& last = stages_.back();
    for (std::size_t group = 0; group < pass.groups(); ++group) {
      for (Layer* layer : last.layers) layer->forward(pass, group);
      for (auto layer = last.layers.rbegin(); layer != last.layers.rend(); ++layer) (*layer)->backward(pass, group);
    }
    for (std::size_t i = stages_.size() - 1; i-- > 0;) backward(stages_[i], pass);
    for (const auto& layer : layers_) layer->finish(pass);
    return loss_->loss_sum() / static_cast<double>(batch.size());
  }

  Evaluation evaluate(const data::Batch& batch, std::span<std::int32_t> predictions) override {
    STARLING_CHECK(predictions.empty() || predictions.size() == batch.size(),
                   std::string("there must be room for one prediction per sample"));
    const Pass pass{.batch = &batch, .training = false, .predictions = predictions};
    begin(pass);
    for (const Stage& stage : stages_) forward(stage, pass);
    return {.loss_sum = loss_->loss_sum(), .correct = loss_->correct(), .samples = batch.size()};
  }

 private:
  void begin(const Pass& pass) {
    const data::Samples& samples = *pass.batch->samples;
    STARLING_CHECK(samples.shape == specs_.front().input, std::string("the batch has the shape of the model"));
    STARLING_CHECK(pass.samples() > 0, std::string("a batch has samples"));
    reserve(pass.groups());
    for (const auto& layer : layers_) layer->begin(pass);
  }

  static void forward(const Stage& stage, const Pass& pass) {
    const std::size_t groups = stage.whole_batch ? 1 : pass.groups();
    for (std::size_t group = 0; group < groups; ++group) {
      for (Layer* layer : stage.layers) layer->forward(pass, group);
    }
  }

  static void backward(const Stage& stage, const Pass& pass) {
    const std::size_t groups = stage.whole_batch ? 1 : pass.groups();
    for (std::size_t group = 0; group < groups; ++group) {
      for (auto layer = stage.layers.rbegin(); layer != stage.layers.rend(); ++layer) (*layer)->backward(pass, group);
    }
  }

  bool wants_matrix(const LayerSpec& layer) const {
    if (layer.kind != LayerKind::dense) return false;
    return layer.input.size() * static_cast<std::size_t>(layer.outputs) > options_.direct_dense_weights && gemm_is_available();
  }

  void build(std::uint64_t seed, std::uint32_t rank) {
    const auto first_dense = std::find_if(specs_.begin(), specs_.end(), [](const LayerSpec& spec) { return !in_place(spec.kind); });
    Edge* edge = add_edge(specs_.front().input.size(), first_dense != specs_.end() && wants_matrix(*first_dense));
    add_layer(make_input(specs_.front().input, edge), edge, edge);
    bool weights_before = false;
    const LayerSpec* last_activation = nullptr;  // On the present edge.
    for (const LayerSpec& spec : specs_) {
      if (!in_place(spec.kind) && edge->matrix != wants_matrix(spec)) edge = convert(edge);
      // An activation finds its derivative in what it left behind, so nobody may work in place after it. Only dropout after relu may: what
      // it sets to zero has no gradient either way, and what it scales keeps its sign.
      if (in_place(spec.kind) && last_activation != nullptr &&
          !(last_activation->kind == LayerKind::relu && spec.kind == LayerKind::dropout)) {
        edge = copy(edge);
        last_activation = nullptr;
      }
      Edge* out = in_place(spec.kind) ? edge : add_edge(spec.output.size(), edge->matrix);
      const LayerParts parts{.spec = &spec, .in = edge, .out = out, .weights = weights_of(spec), .input_gradient = weights_before};
      add_layer(make_layer(parts, seed, rank), edge, out);
      weights_before = weights_before || parts.weights.weight != nullptr;
      if (out != edge) last_activation = nullptr;
      if (is_activation(spec.kind)) last_activation = &spec;
      edge = out;
    }
    if (edge->matrix) edge = convert(edge);
    std::unique_ptr<LossLayer> loss = make_loss(network_.loss, static_cast<int>(edge->features), edge);
    loss_ = loss.get();
    add_layer(std::move(loss), edge, edge);
    share_memory();
  }

  static std::unique_ptr<Layer> make_layer(const LayerParts& parts, std::uint64_t seed, std::uint32_t rank) {
    switch (parts.spec->kind) {
      case LayerKind::dense:
        return parts.in->matrix ? make_matrix_dense(parts) : make_dense(parts);
      case LayerKind::conv:
        return make_convolution(parts);
      case LayerKind::maxpool:
      case LayerKind::avgpool:
        return make_pooling(parts);
      case LayerKind::batchnorm:
        return make_batch_norm(parts);
      case LayerKind::dropout:
        return make_dropout(parts, seed, rank);
      default:
        return make_activation(parts);
    }
  }

  Edge* add_edge(std::size_t features, bool matrix) {
    return &edges_.emplace_back(Buffer{.edge = {.features = features, .matrix = matrix}}).edge;
  }

  Edge* convert(Edge* in) {
    Edge* out = add_edge(in->features, !in->matrix);
    add_layer(make_conversion(in, out), in, out);
    return out;
  }

  Edge* copy(Edge* in) {
    Edge* out = add_edge(in->features, in->matrix);
    add_layer(make_copy(in, out), in, out);
    return out;
  }

  void add_layer(std::unique_ptr<Layer> layer, const Edge* in, const Edge* out) {
    if (stages_.empty() || stages_.back().whole_batch != layer->whole_batch())
      stages_.push_back({.whole_batch = layer->whole_batch(), .layers = {}});
    stages_.back().layers.push_back(layer.get());
    layers_.push_back(std::move(layer));
    for (Buffer& buffer : edges_) {
      if (&buffer.edge != in && &buffer.edge != out) continue;
      buffer.last_stage = stages_.size() - 1;
      if (buffer.first_stage == kNoStage) buffer.first_stage = buffer.last_stage;
    }
  }

  // Decides which edges need memory for every group: those that more than one stage touches, and values that a later backward pass reads.
  void share_memory() {
    for (Buffer& buffer : edges_) {
      const bool one_stage = buffer.first_stage == buffer.last_stage && !stages_[buffer.first_stage].whole_batch;
      buffer.shares_gradients = one_stage;
      buffer.shares_values = one_stage && buffer.first_stage + 1 == stages_.size();
    }
  }

  void reserve(std::size_t groups) {
    if (groups <= reserved_groups_) return;
    for (Buffer& buffer : edges_) {
      const std::size_t size = buffer.edge.features * kGroup;
      buffer.edge.value_step = buffer.shares_values ? 0 : size;
      buffer.edge.gradient_step = buffer.shares_gradients ? 0 : size;
      buffer.values.grow(buffer.shares_values ? size : size * groups);
      buffer.gradients.grow(buffer.shares_gradients ? size : size * groups);
      buffer.edge.values = buffer.values.data();
      buffer.edge.gradients = buffer.gradients.data();
    }
    for (const auto& layer : layers_) layer->reserve(groups);
    reserved_groups_ = groups;  // Last: memory may have run out before.
  }

  Weights weights_of(const LayerSpec& spec) {
    const auto at = [&](const char* suffix, float* flat) {
      const params::Slice* slice = layout_.find(spec.name + suffix);
      return slice == nullptr ? nullptr : flat + slice->offset;
    };
    return {.weight = at(".weight", weights_.data()),
            .bias = at(".bias", weights_.data()),
            .weight_gradient = at(".weight", gradient_.data()),
            .bias_gradient = at(".bias", gradient_.data()),
            .mean = at(".mean", weights_.data()),
            .variance = at(".variance", weights_.data())};
  }

  static constexpr std::size_t kNoStage = ~std::size_t{0};
  struct Buffer {
    Edge edge{};
    std::size_t first_stage = kNoStage;
    std::size_t last_stage = kNoStage;
    bool shares_values = false;
    bool shares_gradients = false;
    AlignedFloats values{};
    AlignedFloats gradients{};
  };

  NativeOptions options_;
  Network network_;
  std::vector<LayerSpec> specs_;
  params::Layout layout_;
  AlignedFloats weights_;
  AlignedFloats gradient_;
  std::deque<Buffer> edges_;  // A deque, because layers hold pointers into it.
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Stage> stages_;
  LossLayer* loss_ = nullptr;
  std::size_t reserved_groups_ = 0;
};

}  // namespace

std::unique_ptr<Replica> make_native_replica(const Network& network, std::uint64_t seed, std::uint32_t rank, const NativeOptions& options) {
  return std::make_unique<NativeReplica>(network, seed, rank, options);
}

}  // namespace starling::compute::native
