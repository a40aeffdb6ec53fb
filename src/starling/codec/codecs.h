// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How make_codec.cc makes each codec; values are within their ranges already. For everybody else: codec.h.
#pragma once

#include <cstddef>
#include <memory>

#include "starling/codec/codec.h"

namespace starling::codec {

// Components that share a scale, two means, or a list of places.
inline constexpr std::size_t kInt8Block = 256;
inline constexpr std::size_t kOneBitBlock = 512;
inline constexpr std::size_t kThresholdBlock = 128;

struct DgcOptions {
  double ratio = 0.001;
  double warmup_epochs = 5;
  bool masking = true;
};

std::unique_ptr<Codec> make_fp32(const CodecContext& context);
std::unique_ptr<Codec> make_fp16(const CodecContext& context);
std::unique_ptr<Codec> make_bf16(const CodecContext& context);
std::unique_ptr<Codec> make_int8(const CodecContext& context);
std::unique_ptr<Codec> make_one_bit(const CodecContext& context);
std::unique_ptr<Codec> make_threshold(const CodecContext& context, float threshold);
std::unique_ptr<Codec> make_top_k(const CodecContext& context, double ratio);
std::unique_ptr<Codec> make_random_k(const CodecContext& context, double ratio);
std::unique_ptr<Codec> make_dgc(const CodecContext& context, const DgcOptions& options);
std::unique_ptr<Codec> make_power_sgd(const CodecContext& context, std::size_t rank);

}  // namespace starling::codec
