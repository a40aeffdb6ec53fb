// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/samples.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "starling/base/error.h"

namespace starling::data {
namespace {

// Scale and shift that take this mean to 0 and this variance to 1.
Standardisation from_moments(double mean, double variance) {
  const double deviation = variance > 0 ? std::sqrt(variance) : 1;
  return {.scale = static_cast<float>(1 / deviation), .shift = static_cast<float>(-mean / deviation)};
}

// Visits the values of one channel, sample after sample, as spans of height × width.
template <class Value, class Visit>
void for_each_plane(const Samples& samples, const std::vector<Value>& values, std::size_t channel, const Visit& visit) {
  const std::size_t plane = samples.shape.size() / static_cast<std::size_t>(samples.shape.channels);
  for (std::size_t sample = 0; sample < samples.count; ++sample) {
    visit(std::span(values).subspan(sample * samples.shape.size() + channel * plane, plane));
  }
}

// By way of a histogram, so that the sums are exact.
Standardisation standardise_bytes(const Samples& samples, std::size_t channel) {
  // Neighbours, which are often equal, count in different tables, so that no increment waits for the one before it.
  std::array<std::array<std::uint64_t, 256>, 4> tables{};
  for_each_plane(samples, samples.bytes, channel, [&](std::span<const std::uint8_t> plane) {
    for (std::size_t i = 0; i < plane.size(); ++i) ++tables[i % 4][plane[i]];
  });
  std::array<std::uint64_t, 256> histogram{};
  for (const auto& table : tables) {
    for (std::size_t value = 0; value < histogram.size(); ++value) histogram[value] += table[value];
  }
  double count = 0;
  double sum = 0;
  for (std::size_t value = 0; value < histogram.size(); ++value) {
    count += static_cast<double>(histogram[value]);
    sum += static_cast<double>(histogram[value] * value);
  }
  const double mean = sum / count;
  double squares = 0;
  for (std::size_t value = 0; value < histogram.size(); ++value) {
    const double difference = static_cast<double>(value) - mean;
    squares += static_cast<double>(histogram[value]) * difference * difference;
  }
  return from_moments(mean, squares / count);
}

Standardisation standardise_floats(const Samples& samples, std::size_t channel) {
  const double count = static_cast<double>(samples.floats.size()) / samples.shape.channels;
  double sum = 0;
  for_each_plane(samples, samples.floats, channel, [&](std::span<const float> plane) {
    for (const float value : plane) sum += static_cast<double>(value);
  });
  const double mean = sum / count;
  double squares = 0;
  for_each_plane(samples, samples.floats, channel, [&](std::span<const float> plane) {
    for (const float value : plane) squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  });
  return from_moments(mean, squares / count);
}

// Plain enough for the compiler to vectorise.
template <class Value>
void copy_plane(const Value* from, float* to, std::size_t count, Standardisation standardisation) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * standardisation.scale + standardisation.shift;
}

template <class Value>
void copy_rows(const Batch& batch, const std::vector<Value>& values, float* to) {
  const Samples& samples = *batch.samples;
  const std::size_t size = samples.shape.size();
  const std::size_t plane = size / static_cast<std::size_t>(samples.shape.channels);
  for (const std::uint32_t index : batch.indices) {
    STARLING_CHECK(index < samples.count, fmt::format("sample {} of {}", index, samples.count));
    const Value* from = values.data() + index * size;
    for (const Standardisation standardisation : samples.standardisation) {
      copy_plane(from, to, plane, standardisation);
      from += plane;
      to += plane;
    }
  }
}

}  // namespace

void copy_inputs(const Batch& batch, std::span<float> to) {
  const Samples& samples = *batch.samples;
  STARLING_CHECK(to.size() == batch.size() * samples.shape.size(),
                 fmt::format("{} floats for {} samples of {}", to.size(), batch.size(), samples.shape.size()));
  STARLING_CHECK(samples.standardisation.size() == static_cast<std::size_t>(samples.shape.channels),
                 fmt::format("{} standardisations for {} channels", samples.standardisation.size(), samples.shape.channels));
  if (samples.bytes.empty()) {
    copy_rows(batch, samples.floats, to.data());
  } else {
    copy_rows(batch, samples.bytes, to.data());
  }
}

std::vector<Standardisation> standardise(const Samples& samples) {
  STARLING_CHECK(samples.count > 0 && samples.shape.size() > 0, std::string("samples to take the mean of"));
  std::vector<Standardisation> result;
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(samples.shape.channels); ++channel) {
    result.push_back(samples.bytes.empty() ? standardise_floats(samples, channel) : standardise_bytes(samples, channel));
  }
  return result;
}

Samples subset(const Samples& samples, std::span<const std::uint32_t> indices) {
  Samples result{.shape = samples.shape, .count = indices.size(), .standardisation = samples.standardisation};
  result.classes = samples.classes;
  result.outputs = samples.outputs;
  const auto append = [](auto& to, const auto& from, std::size_t index, std::size_t size) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(index * size);
    if (!from.empty()) to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
  };
  for (const std::uint32_t index : indices) {
    STARLING_CHECK(index < samples.count, fmt::format("sample {} of {}", index, samples.count));
    append(result.bytes, samples.bytes, index, samples.shape.size());
    append(result.floats, samples.floats, index, samples.shape.size());
    append(result.labels, samples.labels, index, 1);
    append(result.targets, samples.targets, index, static_cast<std::size_t>(samples.outputs));
  }
  return result;
}

}  // namespace starling::data
