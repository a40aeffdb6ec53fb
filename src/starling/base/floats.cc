// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/floats.h"

#include <string>

#include "starling/base/error.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/base/floats.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace starling::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void add(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::size_t count) {
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(tag, to + i), hn::LoadU(tag, from + i)), tag, to + i);
  }
  for (; i < count; ++i) to[i] += from[i];
}

void add_to_both(float* HWY_RESTRICT a, float* HWY_RESTRICT b, std::size_t count) {
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto sum = hn::Add(hn::LoadU(tag, a + i), hn::LoadU(tag, b + i));
    hn::StoreU(sum, tag, a + i);
    hn::StoreU(sum, tag, b + i);
  }
  for (; i < count; ++i) a[i] = b[i] = a[i] + b[i];
}

// The loops below need no Highway: compiled for each instruction set, the compiler makes vectors of them.
void scale(float* values, float factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
}

void subtract(float* to, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] - b[i];
}

void add_scaled(float* HWY_RESTRICT to, float factor, const float* HWY_RESTRICT from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

void difference(float* to, float factor, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = factor * (a[i] - b[i]);
}

}  // namespace starling::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

HWY_EXPORT(add);
HWY_EXPORT(add_to_both);
HWY_EXPORT(scale);
HWY_EXPORT(subtract);
HWY_EXPORT(add_scaled);
HWY_EXPORT(difference);

void add_floats(std::span<float> to, std::span<const float> from) {
  STARLING_CHECK(to.size() == from.size(), std::string("add_floats needs two vectors of one length"));
  HWY_DYNAMIC_DISPATCH(add)(to.data(), from.data(), to.size());
}

void add_floats_to_both(std::span<float> a, std::span<float> b) {
  STARLING_CHECK(a.size() == b.size(), std::string("add_floats_to_both needs two vectors of one length"));
  HWY_DYNAMIC_DISPATCH(add_to_both)(a.data(), b.data(), a.size());
}

void scale_floats(std::span<float> values, float factor) { HWY_DYNAMIC_DISPATCH(scale)(values.data(), factor, values.size()); }

void subtract_floats(std::span<float> to, std::span<const float> a, std::span<const float> b) {
  STARLING_CHECK(to.size() == a.size() && to.size() == b.size(), std::string("subtract_floats needs three vectors of one length"));
  HWY_DYNAMIC_DISPATCH(subtract)(to.data(), a.data(), b.data(), to.size());
}

void add_scaled_floats(std::span<float> to, float factor, std::span<const float> from) {
  STARLING_CHECK(to.size() == from.size(), std::string("add_scaled_floats needs two vectors of one length"));
  HWY_DYNAMIC_DISPATCH(add_scaled)(to.data(), factor, from.data(), to.size());
}

void scaled_difference(std::span<float> to, float factor, std::span<const float> a, std::span<const float> b) {
  STARLING_CHECK(to.size() == a.size() && to.size() == b.size(), std::string("scaled_difference needs three vectors of one length"));
  HWY_DYNAMIC_DISPATCH(difference)(to.data(), factor, a.data(), b.data(), to.size());
}

}  // namespace starling
#endif
