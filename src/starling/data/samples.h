// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Samples in memory, and batches of them. Images stay bytes, one row of channels × height × width per sample, and become
// standardised floats only when a batch is used; features that are not bytes are kept as floats.
//
//   Batch batch{.samples = &dataset.train, .indices = order.next(64), .number = step};
//   std::vector<float> inputs(batch.size() * batch.samples->shape.size());
//   copy_inputs(batch, inputs);                  // Row by row: what most frameworks expect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace starling::data {

struct Shape {
  int channels = 1;
  int height = 1;
  int width = 1;

  std::size_t size() const {
    return static_cast<std::size_t>(channels) * static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
  }
  bool operator==(const Shape&) const = default;
};

// How a raw value of one channel becomes an input: raw × scale + shift.
struct Standardisation {
  float scale = 1;
  float shift = 0;

  bool operator==(const Standardisation&) const = default;
};

// A set of samples with their answers. Immutable once made, so that any number of ranks may read it at the same time.
struct Samples {
  Shape shape{};
  std::size_t count = 0;

  // Inputs, count × shape.size(); exactly one of the two is filled.
  std::vector<std::uint8_t> bytes{};
  std::vector<float> floats{};
  std::vector<Standardisation> standardisation{};  // One per channel.

  // Answers: either a class per sample (labels, each in 0 … classes - 1), or `outputs` numbers per sample (targets).
  std::vector<std::int32_t> labels{};
  int classes = 0;
  std::vector<float> targets{};
  int outputs = 0;

  bool has_labels() const { return classes > 0; }

  // What a network that answers must put out: the number of classes, or of targets.
  int answer_size() const { return has_labels() ? classes : outputs; }
};

// Some samples of a set: a view, valid as long as the set and the indices are.
struct Batch {
  const Samples* samples = nullptr;
  std::span<const std::uint32_t> indices{};
  // Which batch of the run's this is. What a replica draws at random for a batch (dropout) is a function of seed and number, so that a
  // resumed run draws the same.
  std::uint64_t number = 0;

  std::size_t size() const { return indices.size(); }
};

// The standardised inputs of the batch, sample after sample: batch.size() × shape.size() floats.
void copy_inputs(const Batch& batch, std::span<float> to);

// Scale and shift so that each channel of these samples has mean 0 and deviation 1 (a channel that never changes keeps deviation 1 / scale
// 1).
std::vector<Standardisation> standardise(const Samples& samples);

// These samples alone, in this order.
Samples subset(const Samples& samples, std::span<const std::uint32_t> indices);

}  // namespace starling::data
