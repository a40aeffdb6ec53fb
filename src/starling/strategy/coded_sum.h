// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A sum over all workers of vectors that travel through a codec: each encodes its own once and sends it to all others; all decode all, in
// the order of ranks, so that they have the same sum, bit for bit. With the codec fp32 it is an all-reduce.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "starling/collective/collective.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

class CodedSum {
 public:
  explicit CodedSum(const Context& context, collective::AllReduceOptions options = {});

  // `values` (one per parameter) becomes the sum. All workers call it.
  Status add_up(std::span<float> values, double epoch);

  bool coded() const { return codec_ != nullptr; }
  void list_state(params::StateList& state);

 private:
  const Context& context_;
  fabric::Group workers_;
  collective::AllReduceOptions options_;
  std::unique_ptr<codec::Codec> codec_;
  std::vector<std::byte> bytes_;
  std::vector<float> decoded_;
};

// What a codec of this rank is made for.
codec::CodecContext codec_context(const Context& context, params::Layout layout);

}  // namespace starling::strategy
