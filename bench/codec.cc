// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding of 25 million floats by every codec, on one core, beside memcpy of the same floats in the same rounds. A codec's
// time is the best of its rounds, as is memcpy's: what the machine can do when nobody disturbs it.
#include "starling/codec/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "starling/base/aligned_floats.h"
#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::bench {
namespace {

constexpr std::size_t kRows = 5000;
constexpr std::size_t kColumns = 5000;

struct Row {
  std::string name{};
  double encode_seconds = std::numeric_limits<double>::infinity();
  double decode_seconds = std::numeric_limits<double>::infinity();
  std::size_t bytes = 0;  // Of the last update.
};

template <class Work>
void time(double& best, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  best = std::min(best, seconds_since(begin));
}

// Gaussian, with a deviation that differs from stretch to stretch as it does from layer to layer.
void fill_gradient(std::span<float> gradient) {
  RandomStream stream(1, 0, "gradient");
  std::vector<float> normal(1 << 20U);
  for (float& value : normal) value = static_cast<float>(stream.normal());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const float scale = 0.001F * static_cast<float>(1 + (i >> 18U) % 7);
    gradient[i] = scale * normal[(i * 7919 + (i >> 20U)) % normal.size()];
  }
}

void measure(Row& row, double& memcpy_seconds, int rounds, AlignedFloats& gradient, AlignedFloats& decoded) {
  params::Layout layout;
  layout.add("weight", {static_cast<std::int64_t>(kRows), static_cast<std::int64_t>(kColumns)});
  const std::unique_ptr<codec::Codec> codec = codec::make_codec(row.name, {.layout = layout, .momentum = 0.9});
  codec->set_progress(100);
  std::vector<std::byte> bytes;
  codec->encode(gradient.span(), bytes);  // Brings all memory into being.
  for (int round = 0; round < rounds; ++round) {
    time(memcpy_seconds, [&] { std::memcpy(decoded.data(), gradient.data(), gradient.size() * sizeof(float)); });
    time(row.encode_seconds, [&] { codec->encode(gradient.span(), bytes); });
    time(row.decode_seconds, [&] {
      if (const auto error = codec->decode(bytes, decoded.span())) throw BrokenInvariant(*error);
    });
  }
  row.bytes = bytes.size();
}

void run() {
  AlignedFloats gradient(kRows * kColumns);
  AlignedFloats decoded(kRows * kColumns);
  fill_gradient(gradient.span());
  double memcpy_seconds = std::numeric_limits<double>::infinity();
  std::vector<Row> rows;
  for (const char* name : {"fp32", "fp16", "bf16", "int8", "1bit", "threshold:0.03", "threshold:0.003", "topk:0.01", "topk:0.001",
                           "randomk:0.01", "dgc:0.001", "powersgd:4"}) {
    rows.push_back({.name = name});
  }
  print_load("before");
  constexpr int kPasses = 3;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (Row& row : rows) measure(row, memcpy_seconds, 7, gradient, decoded);
  }
  print_load("after");

  const double input_bytes = static_cast<double>(gradient.size() * sizeof(float));
  const auto speed = [&](double seconds) { return input_bytes / seconds / 1e9; };
  const auto share = [&](double seconds) { return 100 * memcpy_seconds / seconds; };
  fmt::print("\n{} floats, one core, best of {} rounds. memcpy: {:.1f} GB/s. Speeds are bytes of floats, not of what they become.\n\n",
             gradient.size(), 7 * kPasses, speed(memcpy_seconds));
  fmt::print("{:<16}{:>14}{:>14}{:>14}{:>14}{:>20}{:>14}\n", "codec", "encode GB/s", "of memcpy", "decode GB/s", "of memcpy",
             "both, of memcpy", "bytes/float");
  for (const Row& row : rows) {
    fmt::print("{:<16}{:>14.2f}{:>13.0f}%{:>14.2f}{:>13.0f}%{:>19.0f}%{:>14.4f}\n", row.name, speed(row.encode_seconds),
               share(row.encode_seconds), speed(row.decode_seconds), share(row.decode_seconds),
               share(row.encode_seconds + row.decode_seconds), static_cast<double>(row.bytes) / static_cast<double>(gradient.size()));
  }
  fmt::print("\nboth: memcpy's time over that of encoding and decoding together. Error feedback reads and writes the residual as well.\n");
}

}  // namespace
}  // namespace starling::bench

int main() { starling::bench::run(); }
