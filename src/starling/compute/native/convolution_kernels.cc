// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/native/convolution_kernels.h"

#include <cstring>

// Highway compiles this file once for every instruction set that is left, and picks one at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/compute/native/convolution_kernels.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/compute/native/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::compute::native::HWY_NAMESPACE {

// One row of taps for the outputs of a block: sums[channel] += weight[tap][channel] × input[tap]. The inputs of successive taps are
// input_step floats apart. kTaps is the number of taps, or 0 where only `taps` knows it.
template <int kChannels, int kTaps>
HWY_INLINE void add_taps(const float* HWY_RESTRICT input, std::ptrdiff_t input_step, const float* HWY_RESTRICT weight,
                         std::ptrdiff_t weight_step, int taps, Vector (&sums)[kChannels][kVectors]) {
  const int count = kTaps > 0 ? kTaps : taps;
  for (int tap = 0; tap < count; ++tap) {
    Vector inputs[kVectors];
    for (int v = 0; v < kVectors; ++v) inputs[v] = hn::LoadU(kTag, input + v * kVectorLanes);
    for (int channel = 0; channel < kChannels; ++channel) {
      const Vector factor = hn::Set(kTag, weight[channel]);
      for (int v = 0; v < kVectors; ++v) sums[channel][v] = hn::MulAdd(factor, inputs[v], sums[channel][v]);
    }
    input += input_step;
    weight += weight_step;
  }
}

template <int kChannels>
HWY_INLINE void store_sums(const Vector (&sums)[kChannels][kVectors], float* to, std::ptrdiff_t channel_step) {
  for (int channel = 0; channel < kChannels; ++channel) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[channel][v], kTag, to + channel * channel_step + v * kVectorLanes);
  }
}

template <int kChannels, int kTaps>
void forward_block(const ConvolutionGeometry& g, const float* HWY_RESTRICT padded, const float* HWY_RESTRICT packed,
                   const float* HWY_RESTRICT bias, float* HWY_RESTRICT out) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.padded_width()) * kGroup;
  const std::ptrdiff_t plane = row * g.padded_height();
  const std::ptrdiff_t out_plane = static_cast<std::ptrdiff_t>(g.out_height) * g.out_width * kGroup;
  for (int y = 0; y < g.out_height; ++y) {
    for (int x = 0; x < g.out_width; ++x) {
      Vector sums[kChannels][kVectors];
      for (int channel = 0; channel < kChannels; ++channel) {
        const Vector first = bias == nullptr ? hn::Zero(kTag) : hn::Set(kTag, bias[channel]);
        for (int v = 0; v < kVectors; ++v) sums[channel][v] = first;
      }
      const float* weight = packed;
      for (int channel = 0; channel < g.in_channels; ++channel) {
        const float* input = padded + channel * plane + y * g.stride * row + static_cast<std::ptrdiff_t>(x) * g.stride * kGroup;
        for (int ky = 0; ky < g.kernel_height; ++ky) {
          add_taps<kChannels, kTaps>(input, kGroup, weight, kChannels, g.kernel_width, sums);
          weight += g.kernel_width * kChannels;
          input += row;
        }
      }
      store_sums<kChannels>(sums, out + (static_cast<std::ptrdiff_t>(y) * g.out_width + x) * kGroup, out_plane);
    }
  }
}

// Along one axis: the taps that reach an output from a padded input position, first, first + stride, …, below end; and the output that the
// first of them reaches. Each further tap reaches the output before.
struct TapRange {
  int first;
  int count;
  int output;
};

HWY_INLINE TapRange taps_at(int position, int kernel, int stride, int outputs) {
  int first = position % stride;  // position - tap must be a multiple of the stride,
  int output = (position - first) / stride;
  if (output >= outputs) {  // and must lie inside.
    first += (output - outputs + 1) * stride;
    output = outputs - 1;
  }
  int count = first < kernel ? (kernel - 1 - first) / stride + 1 : 0;
  if (count > output + 1) count = output + 1;
  return {first, count, output};
}

template <int kChannels, int kTaps>
void input_gradient_block(const ConvolutionGeometry& g, const float* HWY_RESTRICT out_gradient, const float* HWY_RESTRICT packed,
                          float* HWY_RESTRICT in_gradient) {
  const std::ptrdiff_t out_row = static_cast<std::ptrdiff_t>(g.out_width) * kGroup;
  const std::ptrdiff_t out_plane = out_row * g.out_height;
  const std::ptrdiff_t in_plane = static_cast<std::ptrdiff_t>(g.in_height) * g.in_width * kGroup;
  const std::ptrdiff_t weight_row = static_cast<std::ptrdiff_t>(g.kernel_width) * kChannels;
  for (int y = 0; y < g.in_height; ++y) {
    const TapRange rows = taps_at(y + g.pad, g.kernel_height, g.stride, g.out_height);
    for (int x = 0; x < g.in_width; ++x) {
      const TapRange columns = taps_at(x + g.pad, g.kernel_width, g.stride, g.out_width);
      Vector sums[kChannels][kVectors];
      for (int channel = 0; channel < kChannels; ++channel) {
        for (int v = 0; v < kVectors; ++v) sums[channel][v] = hn::Zero(kTag);
      }
      const float* weight = packed + rows.first * weight_row + columns.first * kChannels;
      const float* gradient = out_gradient + rows.output * out_row + static_cast<std::ptrdiff_t>(columns.output) * kGroup;
      for (int channel = 0; channel < g.out_channels; ++channel) {
        for (int i = 0; i < rows.count; ++i) {
          const float* from = gradient - i * out_row;
          const float* factor = weight + i * g.stride * weight_row;
          if (columns.count == kTaps) {
            add_taps<kChannels, kTaps>(from, -kGroup, factor, static_cast<std::ptrdiff_t>(g.stride) * kChannels, kTaps, sums);
          } else {
            add_taps<kChannels, 0>(from, -kGroup, factor, static_cast<std::ptrdiff_t>(g.stride) * kChannels, columns.count, sums);
          }
        }
        weight += g.kernel_height * weight_row;
        gradient += out_plane;
      }
      store_sums<kChannels>(sums, in_gradient + (static_cast<std::ptrdiff_t>(y) * g.in_width + x) * kGroup, in_plane);
    }
  }
}

// The gradients of kTaps weights of each of kChannels outputs: sums over all positions of the plane. inputs[tap] is the first input that
// the tap meets.
template <int kChannels, int kTaps>
void weight_gradient_block(const ConvolutionGeometry& g, const float* const* inputs, const float* HWY_RESTRICT out_gradient,
                           float* HWY_RESTRICT sums, std::ptrdiff_t channel_step) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.padded_width()) * kGroup * g.stride;
  const std::ptrdiff_t out_plane = static_cast<std::ptrdiff_t>(g.out_width) * g.out_height * kGroup;
  const std::ptrdiff_t step = static_cast<std::ptrdiff_t>(g.stride) * kGroup;
  Vector totals[kChannels][kTaps];
  for (int channel = 0; channel < kChannels; ++channel) {
    for (int tap = 0; tap < kTaps; ++tap) totals[channel][tap] = hn::Zero(kTag);
  }
  const float* from[kTaps];
  for (int tap = 0; tap < kTaps; ++tap) from[tap] = inputs[tap];
  const float* gradient = out_gradient;
  for (int y = 0; y < g.out_height; ++y) {
    std::ptrdiff_t at = y * row;
    for (int x = 0; x < g.out_width; ++x) {
      for (int v = 0; v < kVectors; ++v) {
        Vector gradients[kChannels];
        for (int channel = 0; channel < kChannels; ++channel) {
          gradients[channel] = hn::LoadU(kTag, gradient + channel * out_plane + v * kVectorLanes);
        }
        for (int tap = 0; tap < kTaps; ++tap) {
          const Vector value = hn::LoadU(kTag, from[tap] + at + v * kVectorLanes);
          for (int channel = 0; channel < kChannels; ++channel) {
            totals[channel][tap] = hn::MulAdd(gradients[channel], value, totals[channel][tap]);
          }
        }
      }
      at += step;
      gradient += kGroup;
    }
  }
  for (int channel = 0; channel < kChannels; ++channel) {
    for (int tap = 0; tap < kTaps; ++tap) {
      float* to = sums + channel * channel_step + tap * kLaneSums;
      hn::StoreU(hn::Add(hn::LoadU(kTag, to), totals[channel][tap]), kTag, to);
    }
  }
}

// All weights of kChannels outputs, kTaps at a time, and the rest one by one.
template <int kChannels, int kTaps>
void weight_gradient_channels(const ConvolutionGeometry& g, const float* padded, const float* out_gradient, float* sums) {
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(g.padded_width()) * kGroup;
  const int weights = g.in_channels * g.taps();
  const std::ptrdiff_t channel_step = static_cast<std::ptrdiff_t>(weights) * kLaneSums;
  const float* inputs[kTaps];
  int gathered = 0;
  int first = 0;
  for (int channel = 0; channel < g.in_channels; ++channel) {
    for (int ky = 0; ky < g.kernel_height; ++ky) {
      for (int kx = 0; kx < g.kernel_width; ++kx) {
        inputs[gathered++] =
            padded + (static_cast<std::ptrdiff_t>(channel) * g.padded_height() + ky) * row + static_cast<std::ptrdiff_t>(kx) * kGroup;
        if (gathered < kTaps) continue;
        weight_gradient_block<kChannels, kTaps>(g, inputs, out_gradient, sums + static_cast<std::ptrdiff_t>(first) * kLaneSums,
                                                channel_step);
        first += kTaps;
        gathered = 0;
      }
    }
  }
  for (int tap = 0; tap < gathered; ++tap) {
    weight_gradient_block<kChannels, 1>(g, inputs + tap, out_gradient, sums + static_cast<std::ptrdiff_t>(first + tap) * kLaneSums,
                                        channel_step);
  }
}

void forward(const ConvolutionGeometry& g, const float* padded, const float* packed, const float* bias, float* out) {
  const Blocks blocks{g.out_channels};
  const std::ptrdiff_t out_plane = static_cast<std::ptrdiff_t>(g.out_height) * g.out_width * kGroup;
  const std::ptrdiff_t weights = static_cast<std::ptrdiff_t>(g.in_channels) * g.taps();
  for (int block = 0; block < blocks.blocks; ++block) {
    const int begin = blocks.begin(block);
    const float* first = packed + begin * weights;
    const float* first_bias = bias == nullptr ? nullptr : bias + begin;
    float* to = out + begin * out_plane;
#define STARLING_FORWARD(channels)                                    \
  case channels:                                                      \
    switch (g.kernel_width) {                                         \
      case 5:                                                         \
        forward_block<channels, 5>(g, padded, first, first_bias, to); \
        break;                                                        \
      case 3:                                                         \
        forward_block<channels, 3>(g, padded, first, first_bias, to); \
        break;                                                        \
      default:                                                        \
        forward_block<channels, 0>(g, padded, first, first_bias, to); \
        break;                                                        \
    }                                                                 \
    break;
    switch (blocks.size(block)) {
      STARLING_FORWARD(1)
      STARLING_FORWARD(2)
      STARLING_FORWARD(3)
      STARLING_FORWARD(4)
      STARLING_FORWARD(5)
      STARLING_FORWARD(6)
    }
#undef STARLING_FORWARD
  }
}

void input_gradient(const ConvolutionGeometry& g, const float* out_gradient, const float* packed, float* in_gradient) {
  const Blocks blocks{g.in_channels};
  const std::ptrdiff_t in_plane = static_cast<std::ptrdiff_t>(g.in_height) * g.in_width * kGroup;
  const std::ptrdiff_t weights = static_cast<std::ptrdiff_t>(g.out_channels) * g.taps();
  for (int block = 0; block < blocks.blocks; ++block) {
    const int begin = blocks.begin(block);
    const float* first = packed + begin * weights;
    float* to = in_gradient + begin * in_plane;
#define STARLING_INPUT_GRADIENT(channels)                              \
  case channels:                                                       \
    switch (g.kernel_width) {                                          \
      case 5:                                                          \
        input_gradient_block<channels, 5>(g, out_gradient, first, to); \
        break;                                                         \
      case 3:                                                          \
        input_gradient_block<channels, 3>(g, out_gradient, first, to); \
        break;                                                         \
      default:                                                         \
        input_gradient_block<channels, 1>(g, out_gradient, first, to); \
        break;                                                         \
    }                                                                  \
    break;
    switch (blocks.size(block)) {
      STARLING_INPUT_GRADIENT(1)
      STARLING_INPUT_GRADIENT(2)
      STARLING_INPUT_GRADIENT(3)
      STARLING_INPUT_GRADIENT(4)
      STARLING_INPUT_GRADIENT(5)
      STARLING_INPUT_GRADIENT(6)
    }
#undef STARLING_INPUT_GRADIENT
  }
}

void weight_gradient(const ConvolutionGeometry& g, const float* padded, const float* out_gradient, float* sums) {
  const std::ptrdiff_t out_plane = static_cast<std::ptrdiff_t>(g.out_height) * g.out_width * kGroup;
  const std::ptrdiff_t channel_step = static_cast<std::ptrdiff_t>(g.in_channels) * g.taps() * kLaneSums;
  const Blocks blocks{g.out_channels, (g.out_channels + 3) / 4};
  for (int block = 0; block < blocks.blocks; ++block) {
    const float* gradient = out_gradient + blocks.begin(block) * out_plane;
    float* to = sums + blocks.begin(block) * channel_step;
    switch (blocks.size(block)) {  // Channels × taps sums have to fit into the registers.
      case 4:
        weight_gradient_channels<4, 3>(g, padded, gradient, to);
        break;
      case 3:
        weight_gradient_channels<3, 4>(g, padded, gradient, to);
        break;
      case 2:
        weight_gradient_channels<2, 6>(g, padded, gradient, to);
        break;
      default:
        weight_gradient_channels<1, 8>(g, padded, gradient, to);
        break;
    }
  }
}

void plane_sums(const float* planes, int channels, int plane, float* to) {
  for (int channel = 0; channel < channels; ++channel) {
    Vector sums[kVectors];
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(kTag);
    const float* from = planes + static_cast<std::ptrdiff_t>(channel) * plane * kGroup;
    for (int i = 0; i < plane; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[v] = hn::Add(sums[v], hn::LoadU(kTag, from + v * kVectorLanes));
      from += kGroup;
    }
    HWY_ALIGN float lanes[kGroup];
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], kTag, lanes + v * kVectorLanes);
    float total = 0;
    for (const float lane : lanes) total += lane;
    to[channel] += total;
  }
}

}  // namespace starling::compute::native::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::compute::native {

HWY_EXPORT(forward);
HWY_EXPORT(input_gradient);
HWY_EXPORT(weight_gradient);
HWY_EXPORT(plane_sums);

void pad_planes(const ConvolutionGeometry& geometry, const float* planes, float* padded) {
  const std::size_t row = static_cast<std::size_t>(geometry.in_width) * kGroup;
  const std::size_t padded_row = static_cast<std::size_t>(geometry.padded_width()) * kGroup;
  for (int channel = 0; channel < geometry.in_channels; ++channel) {
    const std::size_t first_row =
        static_cast<std::size_t>(channel) * static_cast<std::size_t>(geometry.padded_height()) + static_cast<std::size_t>(geometry.pad);
    float* to = padded + first_row * padded_row + static_cast<std::size_t>(geometry.pad) * kGroup;
    for (int y = 0; y < geometry.in_height; ++y) {
      std::memcpy(to, planes, row * sizeof(float));
      planes += row;
      to += padded_row;
    }
  }
}

void pack_for_forward(const ConvolutionGeometry& geometry, const float* weights, float* packed) {
  const Blocks blocks{geometry.out_channels};
  const std::size_t per_output = geometry.weight_count() / static_cast<std::size_t>(geometry.out_channels);
  for (int block = 0; block < blocks.blocks; ++block) {
    const float* first = weights + static_cast<std::size_t>(blocks.begin(block)) * per_output;
    for (std::size_t i = 0; i < per_output; ++i) {
      for (int channel = 0; channel < blocks.size(block); ++channel) *packed++ = first[static_cast<std::size_t>(channel) * per_output + i];
    }
  }
}

void pack_for_input_gradient(const ConvolutionGeometry& geometry, const float* weights, float* packed) {
  const Blocks blocks{geometry.in_channels};
  const std::size_t taps = static_cast<std::size_t>(geometry.taps());
  for (int block = 0; block < blocks.blocks; ++block) {
    for (int out = 0; out < geometry.out_channels; ++out) {
      const float* first = weights + static_cast<std::size_t>(out * geometry.in_channels + blocks.begin(block)) * taps;
      for (std::size_t tap = 0; tap < taps; ++tap) {
        for (int channel = 0; channel < blocks.size(block); ++channel) *packed++ = first[static_cast<std::size_t>(channel) * taps + tap];
      }
    }
  }
}

void convolution_forward(const ConvolutionGeometry& geometry, const float* padded, const float* packed, const float* bias, float* out) {
  HWY_DYNAMIC_DISPATCH(forward)(geometry, padded, packed, bias, out);
}

void convolution_input_gradient(const ConvolutionGeometry& geometry, const float* out_gradient, const float* packed, float* in_gradient) {
  HWY_DYNAMIC_DISPATCH(input_gradient)(geometry, out_gradient, packed, in_gradient);
}

void convolution_weight_gradient(const ConvolutionGeometry& geometry, const float* padded, const float* out_gradient, float* sums) {
  HWY_DYNAMIC_DISPATCH(weight_gradient)(geometry, padded, out_gradient, sums);
}

void reduce_lane_sums(const float* sums, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    const float* s = sums + i * kLaneSums;
    to[i] = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
  }
}

void add_plane_sums(const float* planes, int channels, int plane, float* bias_gradient) {
  HWY_DYNAMIC_DISPATCH(plane_sums)(planes, channels, plane, bias_gradient);
}

}  // namespace starling::compute::native
#endif
