// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Every layer written down as plainly as possible: one sample after the other, in double, by the definition. What the fast kernels are
// held against. Sample s, channel c, row y, column x of a tensor is at ((s × channels + c) × height + y) × width + x.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "starling/compute/network.h"
#include "starling/data/samples.h"

namespace starling::compute {

using Numbers = std::vector<double>;

class ReferenceNetwork {
 public:
  ReferenceNetwork(Network network, std::span<const float> weights)
      : network_(std::move(network)), layout_(layout_of(network_)), weights_(weights.begin(), weights.end()) {}

  Numbers& weights() { return weights_; }

  // What a number is multiplied by in a dropout layer: 0, or 1 / (1 - rate). 1 unless a test says which the layer under test drops.
  std::function<double(const LayerSpec& layer, std::size_t sample, std::size_t feature)> dropout_factor{};

  // The mean loss of the batch; its gradient is then in gradient().
  double compute_gradient(const data::Batch& batch) {
    const double loss = forward(batch, true);
    backward(batch);
    return loss;
  }

  // The mean loss, either as in training or with running statistics. outputs() are then those of the batch.
  double forward(const data::Batch& batch, bool training) {
    samples_ = batch.size();
    training_ = training;
    std::vector<float> inputs(samples_ * batch.samples->shape.size());
    data::copy_inputs(batch, inputs);
    activations_.assign(1, Numbers(inputs.begin(), inputs.end()));
    for (const LayerSpec& layer : network_.layers) activations_.push_back(apply(layer, activations_.back()));
    return loss(batch);
  }

  const Numbers& outputs() const { return activations_.back(); }
  const Numbers& gradient() const { return gradient_; }

 private:
  double* part(Numbers& flat, const std::string& name) {
    const params::Slice* slice = layout_.find(name);
    return slice == nullptr ? nullptr : flat.data() + slice->offset;
  }

  static std::size_t size(int a, int b = 1, int c = 1, int d = 1) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) * static_cast<std::size_t>(d);
  }

  static std::size_t at(const data::Shape& shape, std::size_t sample, int c, int y, int x) {
    return ((sample * size(shape.channels) + size(c)) * size(shape.height) + size(y)) * size(shape.width) + size(x);
  }

  Numbers apply(const LayerSpec& layer, const Numbers& in) {
    switch (layer.kind) {
      case LayerKind::dense:
        return dense(layer, in);
      case LayerKind::conv:
        return convolution(layer, in);
      case LayerKind::maxpool:
      case LayerKind::avgpool:
        return pooling(layer, in);
      case LayerKind::batchnorm:
        return batch_norm(layer, in);
      case LayerKind::relu:
        return each(in, [](double x) { return std::max(x, 0.0); });
      case LayerKind::tanh:
        return each(in, [](double x) { return std::tanh(x); });
      case LayerKind::sigmoid:
        return each(in, [](double x) { return 1 / (1 + std::exp(-x)); });
      case LayerKind::dropout:
        return dropped(layer, in);
    }
    return {};
  }

  Numbers dropped(const LayerSpec& layer, Numbers numbers) const {
    const std::size_t features = layer.input.size();
    for (std::size_t i = 0; i < numbers.size() && training_ && dropout_factor; ++i)
      numbers[i] *= dropout_factor(layer, i / features, i % features);
    return numbers;
  }

  template <class Function>
  static Numbers each(Numbers numbers, const Function& function) {
    for (double& x : numbers) x = function(x);
    return numbers;
  }

  Numbers dense(const LayerSpec& layer, const Numbers& in) {
    const std::size_t inputs = layer.input.size();
    const std::size_t outputs = layer.output.size();
    const double* weight = part(weights_, layer.name + ".weight");
    const double* bias = part(weights_, layer.name + ".bias");
    Numbers out(samples_ * outputs);
    for (std::size_t s = 0; s < samples_; ++s) {
      for (std::size_t o = 0; o < outputs; ++o) {
        double sum = bias == nullptr ? 0 : bias[o];
        for (std::size_t i = 0; i < inputs; ++i) sum += weight[o * inputs + i] * in[s * inputs + i];
        out[s * outputs + o] = sum;
      }
    }
    return out;
  }

  // Calls use(sample, output channel, y, x, input channel, iy, ix, weight index) for every product of a convolution.
  template <class Use>
  void for_products(const LayerSpec& layer, const Use& use) const {
    for (std::size_t s = 0; s < samples_; ++s) {
      for (int o = 0; o < layer.outputs; ++o) {
        for (int y = 0; y < layer.output.height; ++y) {
          for (int x = 0; x < layer.output.width; ++x) {
            for (int i = 0; i < layer.input.channels; ++i) {
              for (int ky = 0; ky < layer.kernel_height; ++ky) {
                for (int kx = 0; kx < layer.kernel_width; ++kx) {
                  const int iy = y * layer.stride + ky - layer.pad;
                  const int ix = x * layer.stride + kx - layer.pad;
                  if (iy < 0 || iy >= layer.input.height || ix < 0 || ix >= layer.input.width) continue;
                  const int weight = ((o * layer.input.channels + i) * layer.kernel_height + ky) * layer.kernel_width + kx;
                  use(at(layer.output, s, o, y, x), at(layer.input, s, i, iy, ix), size(weight));
                }
              }
            }
          }
        }
      }
    }
  }

  Numbers convolution(const LayerSpec& layer, const Numbers& in) {
    const double* weight = part(weights_, layer.name + ".weight");
    const double* bias = part(weights_, layer.name + ".bias");
    const std::size_t plane = size(layer.output.height, layer.output.width);
    Numbers out(samples_ * layer.output.size());
    for (std::size_t k = 0; k < out.size() && bias != nullptr; ++k) out[k] = bias[k / plane % size(layer.outputs)];
    for_products(layer, [&](std::size_t to, std::size_t from, std::size_t w) { out[to] += weight[w] * in[from]; });
    return out;
  }

  // The inputs of every pooling window, for every output.
  std::vector<std::vector<std::size_t>> windows(const LayerSpec& layer) const {
    std::vector<std::vector<std::size_t>> result(samples_ * layer.output.size());
    for (std::size_t s = 0; s < samples_; ++s) {
      for (int c = 0; c < layer.output.channels; ++c) {
        for (int y = 0; y < layer.output.height; ++y) {
          for (int x = 0; x < layer.output.width; ++x) {
            for (int iy = y * layer.stride; iy < std::min(y * layer.stride + layer.kernel_height, layer.input.height); ++iy) {
              for (int ix = x * layer.stride; ix < std::min(x * layer.stride + layer.kernel_width, layer.input.width); ++ix) {
                result[at(layer.output, s, c, y, x)].push_back(at(layer.input, s, c, iy, ix));
              }
            }
          }
        }
      }
    }
    return result;
  }

  static std::size_t largest(const std::vector<std::size_t>& window, const Numbers& in) {
    return *std::max_element(window.begin(), window.end(), [&](std::size_t a, std::size_t b) { return in[a] < in[b]; });
  }

  Numbers pooling(const LayerSpec& layer, const Numbers& in) {
    Numbers out;
    for (const std::vector<std::size_t>& window : windows(layer)) {
      double sum = 0;
      for (const std::size_t i : window) sum += in[i];
      out.push_back(layer.kind == LayerKind::maxpool ? in[largest(window, in)] : sum / static_cast<double>(window.size()));
    }
    return out;
  }

  struct Statistics {
    double mean = 0;
    double variance = 0;
  };

  Statistics statistics(const LayerSpec& layer, const Numbers& in, std::size_t channel) const {
    const std::size_t plane = layer.input.size() / size(layer.input.channels);
    Statistics result;
    double count = 0;
    for (const int round : {0, 1}) {
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (i / plane % size(layer.input.channels) != channel) continue;
        if (round == 0) count += 1;
        if (round == 0) result.mean += in[i];
        if (round == 1) result.variance += (in[i] - result.mean) * (in[i] - result.mean) / count;
      }
      if (round == 0) result.mean /= count;
    }
    return result;
  }

  Numbers batch_norm(const LayerSpec& layer, const Numbers& in) {
    const std::size_t plane = layer.input.size() / size(layer.input.channels);
    const double* weight = part(weights_, layer.name + ".weight");
    const double* bias = part(weights_, layer.name + ".bias");
    std::vector<Statistics> channels;
    for (std::size_t c = 0; c < size(layer.input.channels); ++c) {
      channels.push_back(training_ || layer.batch_statistics
                             ? statistics(layer, in, c)
                             : Statistics{part(weights_, layer.name + ".mean")[c], part(weights_, layer.name + ".variance")[c]});
    }
    Numbers out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t c = i / plane % channels.size();
      out[i] = weight[c] * (in[i] - channels[c].mean) / std::sqrt(channels[c].variance + 1e-5) + bias[c];
    }
    return out;
  }

  double target(const data::Batch& batch, std::size_t s, std::size_t o, std::size_t outputs) const {
    const std::size_t index = batch.indices[s];
    if (!batch.samples->has_labels()) return batch.samples->targets[index * outputs + o];
    return batch.samples->labels[index] == static_cast<int>(o) ? 1 : 0;
  }

  double loss(const data::Batch& batch) {
    const Numbers& out = activations_.back();
    const std::size_t outputs = out.size() / samples_;
    const double n = static_cast<double>(samples_);
    loss_gradient_.assign(out.size(), 0);
    double total = 0;
    for (std::size_t s = 0; s < samples_; ++s) {
      double sum = 0;
      for (std::size_t o = 0; o < outputs; ++o) sum += std::exp(out[s * outputs + o]);
      for (std::size_t o = 0; o < outputs; ++o) {
        const double y = out[s * outputs + o];
        const double t = target(batch, s, o, outputs);
        if (network_.loss == LossKind::cross_entropy) {
          total += t * (std::log(sum) - y) / n;
          loss_gradient_[s * outputs + o] = (std::exp(y) / sum - t) / n;
        } else {
          total += (y - t) * (y - t) / static_cast<double>(outputs) / n;
          loss_gradient_[s * outputs + o] = 2 * (y - t) / static_cast<double>(outputs) / n;
        }
      }
    }
    return total;
  }

  void backward(const data::Batch& /*batch*/) {
    gradient_.assign(layout_.parameter_count(), 0);
    Numbers gradient = loss_gradient_;
    for (std::size_t i = network_.layers.size(); i-- > 0;)
      gradient = turn_back(network_.layers[i], activations_[i], activations_[i + 1], gradient);
  }

  // From the gradient of a layer's outputs to that of its inputs; adds that of its weights to gradient_.
  Numbers turn_back(const LayerSpec& layer, const Numbers& in, const Numbers& out, const Numbers& gradient) {
    Numbers result(in.size(), 0);
    double* weight_gradient = part(gradient_, layer.name + ".weight");
    double* bias_gradient = part(gradient_, layer.name + ".bias");
    const double* weight = part(weights_, layer.name + ".weight");
    const std::size_t outputs = layer.output.size();
    switch (layer.kind) {
      case LayerKind::dense:
        for (std::size_t k = 0; k < gradient.size(); ++k) {
          const std::size_t s = k / outputs;
          const std::size_t o = k % outputs;
          if (bias_gradient != nullptr) bias_gradient[o] += gradient[k];
          for (std::size_t i = 0; i < layer.input.size(); ++i) {
            weight_gradient[o * layer.input.size() + i] += gradient[k] * in[s * layer.input.size() + i];
            result[s * layer.input.size() + i] += gradient[k] * weight[o * layer.input.size() + i];
          }
        }
        break;
      case LayerKind::conv:
        for (std::size_t k = 0; k < gradient.size() && bias_gradient != nullptr; ++k) {
          bias_gradient[k / size(layer.output.height, layer.output.width) % size(layer.outputs)] += gradient[k];
        }
        for_products(layer, [&](std::size_t to, std::size_t from, std::size_t w) {
          weight_gradient[w] += gradient[to] * in[from];
          result[from] += gradient[to] * weight[w];
        });
        break;
      case LayerKind::maxpool:
      case LayerKind::avgpool: {
        const std::vector<std::vector<std::size_t>> all = windows(layer);
        for (std::size_t k = 0; k < all.size(); ++k) {
          if (layer.kind == LayerKind::maxpool) result[largest(all[k], in)] += gradient[k];
          if (layer.kind == LayerKind::avgpool) {
            for (const std::size_t i : all[k]) result[i] += gradient[k] / static_cast<double>(all[k].size());
          }
        }
        break;
      }
      case LayerKind::batchnorm:
        batch_norm_back(layer, in, gradient, result);
        break;
      case LayerKind::relu:
        for (std::size_t i = 0; i < in.size(); ++i) result[i] = in[i] > 0 ? gradient[i] : 0;
        break;
      case LayerKind::tanh:
        for (std::size_t i = 0; i < in.size(); ++i) result[i] = gradient[i] * (1 - out[i] * out[i]);
        break;
      case LayerKind::sigmoid:
        for (std::size_t i = 0; i < in.size(); ++i) result[i] = gradient[i] * out[i] * (1 - out[i]);
        break;
      case LayerKind::dropout:
        result = dropped(layer, gradient);
        break;
    }
    return result;
  }

  void batch_norm_back(const LayerSpec& layer, const Numbers& in, const Numbers& gradient, Numbers& result) {
    const std::size_t plane = layer.input.size() / size(layer.input.channels);
    for (std::size_t c = 0; c < size(layer.input.channels); ++c) {
      const Statistics s = statistics(layer, in, c);
      const double deviation = std::sqrt(s.variance + 1e-5);
      double sum = 0;
      double product = 0;
      double count = 0;
      for (const int round : {0, 1}) {
        for (std::size_t i = 0; i < in.size(); ++i) {
          if (i / plane % size(layer.input.channels) != c) continue;
          const double normal = (in[i] - s.mean) / deviation;
          if (round == 0) {
            sum += gradient[i];
            product += gradient[i] * normal;
            count += 1;
          } else {
            result[i] = part(weights_, layer.name + ".weight")[c] / deviation * (gradient[i] - sum / count - normal * product / count);
          }
        }
      }
      part(gradient_, layer.name + ".weight")[c] = product;
      part(gradient_, layer.name + ".bias")[c] = sum;
    }
  }

  Network network_;
  params::Layout layout_;
  Numbers weights_;
  Numbers gradient_;
  Numbers loss_gradient_;
  std::vector<Numbers> activations_;
  std::size_t samples_ = 0;
  bool training_ = true;
};

}  // namespace starling::compute
