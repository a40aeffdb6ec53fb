// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the codecs with error feedback share: the residual, which is what all updates so far have in excess of what was sent.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "starling/base/aligned_floats.h"
#include "starling/base/error.h"
#include "starling/base/floats.h"
#include "starling/codec/codec.h"

namespace starling::codec {

class WithResidual : public Codec {
 public:
  void add_residual(std::span<float> sum) const override { add_floats(sum, {residual_.data(), count_}); }
  void list_state(params::StateList& state) override { state.add("residual", residual()); }

 protected:
  explicit WithResidual(const CodecContext& context) : count_(context.layout.parameter_count()), residual_(count_) {}

  std::size_t count() const { return count_; }
  std::span<float> residual() { return residual_.span().first(count_); }

  void check_size(std::size_t size) const {
    STARLING_CHECK(size == count_, fmt::format("an update of {} floats for a codec of {}", size, count_));
  }

 private:
  std::size_t count_;
  AlignedFloats residual_;
};

}  // namespace starling::codec
