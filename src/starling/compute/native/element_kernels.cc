// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/native/element_kernels.h"

#include <algorithm>
#include <cstring>

// Highway compiles this file once for every instruction set that is left, and picks one at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/compute/native/element_kernels.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/compute/native/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::compute::native::HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<Tag>;
inline constexpr IntTag kIntTag{};

template <Activation kActivation>
HWY_INLINE Vector activated(Vector x) {
  if constexpr (kActivation == Activation::relu) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(kTag)), x);
  } else if constexpr (kActivation == Activation::tanh) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(kTag, x));
  } else {
    const Vector one = hn::Set(kTag, 1.0f);
    const Vector largest_exponent = hn::Set(kTag, 88.0f);  // Beyond, Exp is not defined, and the result is 0 anyway.
    const Vector y = hn::Div(one, hn::Add(one, hn::Exp(kTag, hn::Min(hn::Neg(x), largest_exponent))));
    return hn::IfThenElse(hn::IsNaN(x), x, y);
  }
}

template <Activation kActivation>
HWY_INLINE Vector slope(Vector y) {
  const Vector one = hn::Set(kTag, 1.0f);
  if constexpr (kActivation == Activation::tanh) return hn::Sub(one, hn::Mul(y, y));
  return hn::Mul(y, hn::Sub(one, y));
}

// Counts are multiples of kGroup.
template <Activation kActivation>
void activate_all(float* HWY_RESTRICT values, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kVectorLanes) hn::StoreU(activated<kActivation>(hn::LoadU(kTag, values + i)), kTag, values + i);
}

template <Activation kActivation>
void gradient_all(const float* HWY_RESTRICT outputs, float* HWY_RESTRICT gradient, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kVectorLanes) {
    const Vector y = hn::LoadU(kTag, outputs + i);
    const Vector g = hn::LoadU(kTag, gradient + i);
    if constexpr (kActivation == Activation::relu) {
      hn::StoreU(hn::IfThenElseZero(hn::Gt(y, hn::Zero(kTag)), g), kTag, gradient + i);
    } else {
      hn::StoreU(hn::Mul(g, slope<kActivation>(y)), kTag, gradient + i);
    }
  }
}

void apply(Activation activation, float* values, std::size_t count) {
  switch (activation) {
    case Activation::relu:
      activate_all<Activation::relu>(values, count);
      break;
    case Activation::tanh:
      activate_all<Activation::tanh>(values, count);
      break;
    case Activation::sigmoid:
      activate_all<Activation::sigmoid>(values, count);
      break;
  }
}

void apply_gradient(Activation activation, const float* outputs, float* gradient, std::size_t count) {
  switch (activation) {
    case Activation::relu:
      gradient_all<Activation::relu>(outputs, gradient, count);
      break;
    case Activation::tanh:
      gradient_all<Activation::tanh>(outputs, gradient, count);
      break;
    case Activation::sigmoid:
      gradient_all<Activation::sigmoid>(outputs, gradient, count);
      break;
  }
}

// The largest of the window at `in`, and which it was. kSize is its extent, or 0 where only height and width know it (at the edges).
template <int kSize>
HWY_INLINE void largest(const float* HWY_RESTRICT in, std::ptrdiff_t row, int height, int width, int kernel, float* HWY_RESTRICT out,
                        std::int32_t* HWY_RESTRICT chosen) {
  const int rows = kSize > 0 ? kSize : height;
  const int columns = kSize > 0 ? kSize : width;
  for (int v = 0; v < kVectors; ++v) {
    Vector best = hn::LoadU(kTag, in + v * kVectorLanes);
    auto which = hn::Zero(kIntTag);
    for (int ky = 0; ky < rows; ++ky) {
      for (int kx = ky == 0 ? 1 : 0; kx < columns; ++kx) {
        const Vector x = hn::LoadU(kTag, in + ky * row + kx * kGroup + v * kVectorLanes);
        const auto larger = hn::Or(hn::Gt(x, best), hn::IsNaN(x));
        best = hn::IfThenElse(larger, x, best);
        which = hn::IfThenElse(hn::RebindMask(kIntTag, larger), hn::Set(kIntTag, ky * kernel + kx), which);
      }
    }
    hn::StoreU(best, kTag, out + v * kVectorLanes);
    hn::StoreU(which, kIntTag, chosen + v * kVectorLanes);
  }
}

// Calls use(input, output, height, width) for every window: where its first input and its output lie, and how much of it is inside.
template <class Use>
HWY_INLINE void for_windows(const PoolGeometry& g, const Use& use) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.in_width) * kGroup;
  std::ptrdiff_t output = 0;
  for (int channel = 0; channel < g.channels; ++channel) {
    for (int y = 0; y < g.out_height; ++y) {
      const int height = std::min(g.kernel, g.in_height - y * g.stride);
      std::ptrdiff_t input = (static_cast<std::ptrdiff_t>(channel) * g.in_height + static_cast<std::ptrdiff_t>(y) * g.stride) * row;
      for (int x = 0; x < g.out_width; ++x) {
        use(input, output, height, std::min(g.kernel, g.in_width - x * g.stride));
        input += static_cast<std::ptrdiff_t>(g.stride) * kGroup;
        output += kGroup;
      }
    }
  }
}

void maximum(const PoolGeometry& g, const float* in, float* out, std::int32_t* chosen) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.in_width) * kGroup;
  for_windows(g, [&](std::ptrdiff_t input, std::ptrdiff_t output, int height, int width) HWY_ATTR {
    if (g.kernel == 2 && height == 2 && width == 2) {
      largest<2>(in + input, row, 2, 2, 2, out + output, chosen + output);
    } else {
      largest<0>(in + input, row, height, width, g.kernel, out + output, chosen + output);
    }
  });
}

// Every input of a window gets the gradient if it was chosen, else zero. Without overlap that is a plain store.
template <bool kAdd>
HWY_INLINE void spread(const float* HWY_RESTRICT gradient, const std::int32_t* HWY_RESTRICT chosen, std::ptrdiff_t row, int height,
                       int width, int kernel, float* HWY_RESTRICT to) {
  for (int v = 0; v < kVectors; ++v) {
    const Vector value = hn::LoadU(kTag, gradient + v * kVectorLanes);
    const auto which = hn::LoadU(kIntTag, chosen + v * kVectorLanes);
    for (int ky = 0; ky < height; ++ky) {
      for (int kx = 0; kx < width; ++kx) {
        float* at = to + ky * row + kx * kGroup + v * kVectorLanes;
        const auto here = hn::RebindMask(kTag, hn::Eq(which, hn::Set(kIntTag, ky * kernel + kx)));
        const Vector share = hn::IfThenElseZero(here, value);
        hn::StoreU(kAdd ? hn::Add(hn::LoadU(kTag, at), share) : share, kTag, at);
      }
    }
  }
}

void maximum_gradient(const PoolGeometry& g, const float* out_gradient, const std::int32_t* chosen, float* in_gradient) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.in_width) * kGroup;
  for_windows(g, [&](std::ptrdiff_t input, std::ptrdiff_t output, int height, int width) HWY_ATTR {
    if (g.overlapping()) {
      spread<true>(out_gradient + output, chosen + output, row, height, width, g.kernel, in_gradient + input);
    } else if (g.kernel == 2 && height == 2 && width == 2) {
      spread<false>(out_gradient + output, chosen + output, row, 2, 2, 2, in_gradient + input);
    } else {
      spread<false>(out_gradient + output, chosen + output, row, height, width, g.kernel, in_gradient + input);
    }
  });
}

void average(const PoolGeometry& g, const float* in, float* out) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.in_width) * kGroup;
  for_windows(g, [&](std::ptrdiff_t input, std::ptrdiff_t output, int height, int width) HWY_ATTR {
    const Vector share = hn::Set(kTag, 1.0f / static_cast<float>(height * width));
    for (int v = 0; v < kVectors; ++v) {
      const float* from = in + input + v * kVectorLanes;
      Vector sum = hn::Zero(kTag);
      for (int ky = 0; ky < height; ++ky) {
        for (int kx = 0; kx < width; ++kx) sum = hn::Add(sum, hn::LoadU(kTag, from + ky * row + kx * kGroup));
      }
      hn::StoreU(hn::Mul(sum, share), kTag, out + output + v * kVectorLanes);
    }
  });
}

void average_gradient(const PoolGeometry& g, const float* out_gradient, float* in_gradient) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.in_width) * kGroup;
  for_windows(g, [&](std::ptrdiff_t input, std::ptrdiff_t output, int height, int width) HWY_ATTR {
    const Vector share = hn::Set(kTag, 1.0f / static_cast<float>(height * width));
    for (int v = 0; v < kVectors; ++v) {
      const Vector value = hn::Mul(hn::LoadU(kTag, out_gradient + output + v * kVectorLanes), share);
      for (int ky = 0; ky < height; ++ky) {
        for (int kx = 0; kx < width; ++kx) {
          float* at = in_gradient + input + ky * row + kx * kGroup + v * kVectorLanes;
          hn::StoreU(hn::Add(hn::LoadU(kTag, at), value), kTag, at);
        }
      }
    }
  });
}

void affine(float scale, float shift, float* HWY_RESTRICT values, std::size_t count) {
  const Vector factor = hn::Set(kTag, scale);
  const Vector offset = hn::Set(kTag, shift);
  for (std::size_t i = 0; i < count; i += kVectorLanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(kTag, values + i), factor, offset), kTag, values + i);
  }
}

void normal_gradient(float scale, float mean_gradient, float mean_product, const float* HWY_RESTRICT normalised,
                     float* HWY_RESTRICT gradient, std::size_t count) {
  const Vector factor = hn::Set(kTag, scale);
  const Vector mean = hn::Set(kTag, mean_gradient);
  const Vector product = hn::Set(kTag, mean_product);
  for (std::size_t i = 0; i < count; i += kVectorLanes) {
    const Vector g = hn::Sub(hn::LoadU(kTag, gradient + i), mean);
    hn::StoreU(hn::Mul(factor, hn::NegMulAdd(hn::LoadU(kTag, normalised + i), product, g)), kTag, gradient + i);
  }
}

// Adds the rows of kGroup lanes: of values, or of their squared distances from a mean, or of products with other values.
void sum_lanes(const float* HWY_RESTRICT values, std::size_t rows, float* HWY_RESTRICT sums) {
  for (int v = 0; v < kVectors; ++v) {
    Vector sum = hn::Zero(kTag);
    for (std::size_t row = 0; row < rows; ++row) sum = hn::Add(sum, hn::LoadU(kTag, values + row * kGroup + v * kVectorLanes));
    hn::StoreU(sum, kTag, sums + v * kVectorLanes);
  }
}

void square_lanes(const float* HWY_RESTRICT values, std::size_t rows, float mean, float* HWY_RESTRICT sums) {
  const Vector middle = hn::Set(kTag, mean);
  for (int v = 0; v < kVectors; ++v) {
    Vector sum = hn::Zero(kTag);
    for (std::size_t row = 0; row < rows; ++row) {
      const Vector difference = hn::Sub(hn::LoadU(kTag, values + row * kGroup + v * kVectorLanes), middle);
      sum = hn::MulAdd(difference, difference, sum);
    }
    hn::StoreU(sum, kTag, sums + v * kVectorLanes);
  }
}

void multiply_lanes(const float* HWY_RESTRICT values, const float* HWY_RESTRICT others, std::size_t rows, float* HWY_RESTRICT sums) {
  for (int v = 0; v < kVectors; ++v) {
    Vector sum = hn::Zero(kTag);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t at = row * kGroup + static_cast<std::size_t>(v * kVectorLanes);
      sum = hn::MulAdd(hn::LoadU(kTag, values + at), hn::LoadU(kTag, others + at), sum);
    }
    hn::StoreU(sum, kTag, sums + v * kVectorLanes);
  }
}

void cross_entropy(int classes, const float* HWY_RESTRICT logits, const std::int32_t* labels, int samples, float weight,
                   float* HWY_RESTRICT losses, float* HWY_RESTRICT gradient) {
  HWY_ALIGN std::int32_t answers[kGroup];
  for (int lane = 0; lane < kGroup; ++lane) answers[lane] = lane < samples ? labels[lane] : -1;
  for (int v = 0; v < kVectors; ++v) {
    const std::ptrdiff_t at = v * kVectorLanes;
    Vector largest_logit = hn::LoadU(kTag, logits + at);
    for (int c = 1; c < classes; ++c) largest_logit = hn::Max(largest_logit, hn::LoadU(kTag, logits + c * kGroup + at));
    const auto answer = hn::LoadU(kIntTag, answers + at);
    Vector total = hn::Zero(kTag);
    Vector own = hn::Zero(kTag);  // The logit of the answer, less the largest.
    for (int c = 0; c < classes; ++c) {
      const Vector x = hn::Sub(hn::LoadU(kTag, logits + c * kGroup + at), largest_logit);
      const Vector e = hn::Add(hn::Exp(kTag, x), hn::Sub(x, x));  // A logit that is no number makes a loss that is none.
      total = hn::Add(total, e);
      own = hn::IfThenElse(hn::RebindMask(kTag, hn::Eq(answer, hn::Set(kIntTag, c))), x, own);
      if (gradient != nullptr) hn::StoreU(e, kTag, gradient + c * kGroup + at);
    }
    hn::StoreU(hn::Sub(hn::Log(kTag, total), own), kTag, losses + at);
    if (gradient == nullptr) continue;
    const Vector factor = hn::Div(hn::Set(kTag, weight), total);
    const auto used = hn::RebindMask(kTag, hn::Gt(answer, hn::Set(kIntTag, -1)));
    for (int c = 0; c < classes; ++c) {
      const Vector p = hn::Mul(hn::LoadU(kTag, gradient + c * kGroup + at), factor);
      const auto here = hn::RebindMask(kTag, hn::Eq(answer, hn::Set(kIntTag, c)));
      const Vector d = hn::Sub(p, hn::IfThenElseZero(here, hn::Set(kTag, weight)));
      hn::StoreU(hn::IfThenElseZero(used, d), kTag, gradient + c * kGroup + at);
    }
  }
}

}  // namespace starling::compute::native::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::compute::native {

HWY_EXPORT(apply);
HWY_EXPORT(apply_gradient);
HWY_EXPORT(maximum);
HWY_EXPORT(maximum_gradient);
HWY_EXPORT(average);
HWY_EXPORT(average_gradient);
HWY_EXPORT(affine);
HWY_EXPORT(normal_gradient);
HWY_EXPORT(cross_entropy);
HWY_EXPORT(sum_lanes);
HWY_EXPORT(square_lanes);
HWY_EXPORT(multiply_lanes);

namespace {

// Gradients that are added up, or that leave out inputs which no window reaches, start from zero.
void clear_inputs(const PoolGeometry& g, float* in_gradient) {
  std::memset(in_gradient, 0, sizeof(float) * static_cast<std::size_t>(g.channels * g.in_height * g.in_width) * kGroup);
}

bool covers_all(const PoolGeometry& g) {
  return g.stride == g.kernel && g.out_height * g.stride >= g.in_height && g.out_width * g.stride >= g.in_width;
}

}  // namespace

void activate(Activation activation, float* values, std::size_t count) { HWY_DYNAMIC_DISPATCH(apply)(activation, values, count); }

void activation_gradient(Activation activation, const float* outputs, float* gradient, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(apply_gradient)(activation, outputs, gradient, count);
}

void max_pool(const PoolGeometry& geometry, const float* in, float* out, std::int32_t* chosen) {
  HWY_DYNAMIC_DISPATCH(maximum)(geometry, in, out, chosen);
}

void max_pool_gradient(const PoolGeometry& geometry, const float* out_gradient, const std::int32_t* chosen, float* in_gradient) {
  if (!covers_all(geometry)) clear_inputs(geometry, in_gradient);
  HWY_DYNAMIC_DISPATCH(maximum_gradient)(geometry, out_gradient, chosen, in_gradient);
}

void average_pool(const PoolGeometry& geometry, const float* in, float* out) { HWY_DYNAMIC_DISPATCH(average)(geometry, in, out); }

void average_pool_gradient(const PoolGeometry& geometry, const float* out_gradient, float* in_gradient) {
  clear_inputs(geometry, in_gradient);
  HWY_DYNAMIC_DISPATCH(average_gradient)(geometry, out_gradient, in_gradient);
}

void scale_and_shift(float scale, float shift, float* values, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(affine)(scale, shift, values, count);
}

void normalisation_gradient(float scale, float mean_gradient, float mean_product, const float* normalised, float* gradient,
                            std::size_t count) {
  HWY_DYNAMIC_DISPATCH(normal_gradient)(scale, mean_gradient, mean_product, normalised, gradient, count);
}

void add_lanes(const float* values, std::size_t rows, float* sums) { HWY_DYNAMIC_DISPATCH(sum_lanes)(values, rows, sums); }

void add_squares(const float* values, std::size_t rows, float mean, float* sums) {
  HWY_DYNAMIC_DISPATCH(square_lanes)(values, rows, mean, sums);
}

void add_products(const float* values, const float* others, std::size_t rows, float* sums) {
  HWY_DYNAMIC_DISPATCH(multiply_lanes)(values, others, rows, sums);
}

void softmax_cross_entropy(int classes, const float* logits, const std::int32_t* labels, int samples, float weight, float* losses,
                           float* gradient) {
  HWY_DYNAMIC_DISPATCH(cross_entropy)(classes, logits, labels, samples, weight, losses, gradient);
}

}  // namespace starling::compute::native
#endif
