// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Small random data sets and random networks that fit them, for tests that compare two ways to compute the same gradient.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "starling/base/random.h"
#include "starling/compute/network.h"
#include "starling/data/samples.h"

namespace starling::compute {

inline int between(RandomStream& random, int low, int high) {
  return low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low + 1)));
}

// Images of bytes with classes, or numbers with numbers to predict.
inline data::Samples random_samples(RandomStream& random, const data::Shape& shape, std::size_t count, int answers, bool images) {
  data::Samples samples;
  samples.shape = shape;
  samples.count = count;
  for (std::size_t i = 0; i < count * shape.size(); ++i) {
    if (images) samples.bytes.push_back(static_cast<std::uint8_t>(random.below(256)));
    if (!images) samples.floats.push_back(static_cast<float>(random.normal()));
  }
  for (int channel = 0; channel < shape.channels; ++channel) {
    samples.standardisation.push_back(images ? data::Standardisation{0.01f + 0.001f * static_cast<float>(channel), -1.3f}
                                             : data::Standardisation{});
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (images) samples.labels.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(answers))));
    for (int k = 0; k < answers && !images; ++k) samples.targets.push_back(static_cast<float>(random.normal()));
  }
  (images ? samples.classes : samples.outputs) = answers;
  return samples;
}

inline std::vector<std::uint32_t> all_indices(std::size_t count) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

// A network of random layers, whatever fits, that ends in `outputs` numbers.
inline std::string random_text(RandomStream& random, data::Shape shape, int outputs) {
  static const std::vector<std::string> kActivations{"relu", "tanh", "sigmoid"};
  std::string text;
  const int layers = between(random, 1, 4);
  for (int i = 0; i < layers; ++i) {
    const int choice = between(random, 0, 6);
    const int least = std::min(shape.height, shape.width);
    if (choice <= 2 && least >= 3) {
      const int kernel_height = between(random, 1, std::min(5, shape.height));
      const int kernel_width = between(random, 1, std::min(6, shape.width));
      const int pad = between(random, 0, (std::max(kernel_height, kernel_width) - 1) / 2);
      const int stride = between(random, 1, 3);
      const int channels = between(random, 1, 9);
      text += fmt::format("conv {} {}x{} stride {} pad {}{}, ", channels, kernel_height, kernel_width, stride, pad,
                          between(random, 0, 3) == 0 ? " no bias" : "");
      shape = {channels, (shape.height + 2 * pad - kernel_height) / stride + 1, (shape.width + 2 * pad - kernel_width) / stride + 1};
    } else if (choice <= 4 && least >= 2) {
      const int kernel = between(random, 1, std::min(3, least));
      const int stride = between(random, 1, 3);
      text += fmt::format("{} {} stride {}, ", between(random, 0, 1) == 0 ? "maxpool" : "avgpool", kernel, stride);
      shape = {shape.channels, (shape.height - kernel) / stride + 1, (shape.width - kernel) / stride + 1};
    } else if (choice == 5) {
      text += between(random, 0, 2) == 0 ? "batchnorm batch, " : "batchnorm, ";
    } else {
      const int size = between(random, 1, 40);
      text += fmt::format("dense {}{}, ", size, between(random, 0, 3) == 0 ? " no bias" : "");
      shape = {size, 1, 1};
    }
    if (between(random, 0, 2) > 0) text += kActivations[random.below(kActivations.size())] + ", ";
    if (between(random, 0, 7) == 0) text += "dropout 0, ";
  }
  text += fmt::format("dense {}", outputs);
  if (between(random, 0, 4) == 0) text += ", mse";
  return text;
}

// ‖a − b‖ / ‖b‖, or ‖a‖ if b is nothing.
template <class A, class B>
double relative_difference(const A& a, const B& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - static_cast<double>(b[i])) * (static_cast<double>(a[i]) - static_cast<double>(b[i]));
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference) / (norm > 1e-20 ? std::sqrt(norm) : 1);
}

}  // namespace starling::compute
