// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels share. Included once per instruction set, inside Highway's machinery.
//
// Samples lie in the lanes: a tensor of a group of kGroup samples is [feature][kGroup], so that one vector instruction does the same thing
// for several samples, whatever the shape of the layer, and no kernel has edges inside a vector.
#if defined(STARLING_COMPUTE_NATIVE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_COMPUTE_NATIVE_LANES_INL_H_
#undef STARLING_COMPUTE_NATIVE_LANES_INL_H_
#else
#define STARLING_COMPUTE_NATIVE_LANES_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "starling/compute/native/group.h"

HWY_BEFORE_NAMESPACE();
namespace starling::compute::native::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most eight floats to a vector, so that two vectors hold a group on all of AVX2 and up, and results do not depend on which.
using Tag = hn::CappedTag<float, 8>;
using Vector = hn::Vec<Tag>;
inline constexpr Tag kTag{};
inline constexpr int kVectorLanes = static_cast<int>(hn::MaxLanes(Tag()));
inline constexpr int kVectors = kGroup / kVectorLanes;  // Vectors to a group.

}  // namespace starling::compute::native::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
