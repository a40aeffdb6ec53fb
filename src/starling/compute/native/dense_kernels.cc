// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/native/dense_kernels.h"

#include <cstring>

// Highway compiles this file once for every instruction set that is left, and picks one at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/compute/native/dense_kernels.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/compute/native/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::compute::native::HWY_NAMESPACE {

inline constexpr int kColumn = 128;  // Outputs that input_gradient takes at a time,
inline constexpr int kAhead = 32;    // and how far ahead, in floats, it asks for weights.

// to[row] = start + the sum over k of factor[row × row_step + k × k_step] × from[k], for kRows rows, where start is what `to` holds if
// kAdd, else first[row], or zero. This is forward (rows are outputs) and input gradient (rows are inputs) alike.
template <int kRows, bool kAdd, bool kPrefetch>
void product_block(int count, const float* HWY_RESTRICT factor, std::ptrdiff_t row_step, std::ptrdiff_t k_step,
                   const float* HWY_RESTRICT from, const float* HWY_RESTRICT first, float* HWY_RESTRICT to) {
  Vector sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kAdd) {
        sums[row][v] = hn::LoadU(kTag, to + row * kGroup + v * kVectorLanes);
      } else {
        sums[row][v] = first == nullptr ? hn::Zero(kTag) : hn::Set(kTag, first[row]);
      }
    }
  }
  for (int k = 0; k < count; ++k) {
    if constexpr (kPrefetch) __builtin_prefetch(factor + kAhead);
    Vector values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = hn::LoadU(kTag, from + v * kVectorLanes);
    for (int row = 0; row < kRows; ++row) {
      const Vector scale = hn::Set(kTag, factor[row * row_step]);
      for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::MulAdd(scale, values[v], sums[row][v]);
    }
    from += kGroup;
    factor += k_step;
  }
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[row][v], kTag, to + row * kGroup + v * kVectorLanes);
  }
}

struct Product {
  int rows;
  int count;
  const float* factor;
  std::ptrdiff_t row_step;
  std::ptrdiff_t k_step;
  const float* first;
};

// All rows for some groups. A block of rows takes one group after the other, so that its factors are fetched once for all of them.
template <bool kAdd, bool kPrefetch>
void product(const Product& p, std::size_t groups, const float* all_from, std::size_t from_step, float* all_to, std::size_t to_step) {
  const Blocks blocks{p.rows};
  for (int block = 0; block < blocks.blocks; ++block) {
    const int begin = blocks.begin(block);
    const float* factor = p.factor + begin * p.row_step;
    const float* first = p.first == nullptr ? nullptr : p.first + begin;
    for (std::size_t group = 0; group < groups; ++group) {
      const float* from = all_from + group * from_step;
      float* to = all_to + group * to_step + static_cast<std::ptrdiff_t>(begin) * kGroup;
      switch (blocks.size(block)) {
        case 1:
          product_block<1, kAdd, kPrefetch>(p.count, factor, p.row_step, p.k_step, from, first, to);
          break;
        case 2:
          product_block<2, kAdd, kPrefetch>(p.count, factor, p.row_step, p.k_step, from, first, to);
          break;
        case 3:
          product_block<3, kAdd, kPrefetch>(p.count, factor, p.row_step, p.k_step, from, first, to);
          break;
        case 4:
          product_block<4, kAdd, kPrefetch>(p.count, factor, p.row_step, p.k_step, from, first, to);
          break;
        case 5:
          product_block<5, kAdd, kPrefetch>(p.count, factor, p.row_step, p.k_step, from, first, to);
          break;
        default:
          product_block<6, kAdd, kPrefetch>(p.count, factor, p.row_step, p.k_step, from, first, to);
          break;
      }
    }
  }
}

void forward(const DenseShape& s, const float* in, const float* weights, const float* bias, float* out) {
  product<false, false>({s.outputs, s.inputs, weights, s.inputs, 1, bias}, s.groups, in, s.in_step, out, s.out_step);
}

// Some outputs at a time: a block of inputs goes down a column of the weights, one cache line per output, and the next blocks find these
// lines again. No processor sees such a column coming, so the lines are asked for ahead of their use.
void input_gradient(const DenseShape& s, const float* out_gradient, const float* weights, float* in_gradient) {
  for (int begin = 0; begin < s.outputs; begin += kColumn) {
    const int count = s.outputs - begin < kColumn + kColumn / 2 ? s.outputs - begin : kColumn;
    const Product part{s.inputs, count, weights + static_cast<std::ptrdiff_t>(begin) * s.inputs, 1, s.inputs, nullptr};
    const float* from = out_gradient + static_cast<std::ptrdiff_t>(begin) * kGroup;
    if (begin == 0) {
      product<false, true>(part, s.groups, from, s.out_step, in_gradient, s.in_step);
    } else {
      product<true, true>(part, s.groups, from, s.out_step, in_gradient, s.in_step);
    }
    if (count > kColumn) break;
  }
}

// Gradients of one tile of inputs for kRows outputs, over all samples.
template <int kRows>
void outer_block(std::size_t groups, int outputs, const float* HWY_RESTRICT tile, const float* HWY_RESTRICT out_gradients,
                 float* HWY_RESTRICT to, std::ptrdiff_t to_step) {
  Vector sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::Zero(kTag);
  }
  for (std::size_t group = 0; group < groups; ++group) {
    for (int sample = 0; sample < kGroup; ++sample) {
      Vector values[kVectors];
      for (int v = 0; v < kVectors; ++v) values[v] = hn::LoadU(kTag, tile + v * kVectorLanes);
      for (int row = 0; row < kRows; ++row) {
        const Vector scale = hn::Set(kTag, out_gradients[row * kGroup + sample]);
        for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::MulAdd(scale, values[v], sums[row][v]);
      }
      tile += kGroup;
    }
    out_gradients += static_cast<std::ptrdiff_t>(outputs) * kGroup;
  }
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[row][v], kTag, to + row * to_step + v * kVectorLanes);
  }
}

void outer(int rows, std::size_t groups, int outputs, const float* tile, const float* out_gradients, float* to, std::ptrdiff_t to_step) {
  switch (rows) {
    case 1:
      outer_block<1>(groups, outputs, tile, out_gradients, to, to_step);
      break;
    case 2:
      outer_block<2>(groups, outputs, tile, out_gradients, to, to_step);
      break;
    case 3:
      outer_block<3>(groups, outputs, tile, out_gradients, to, to_step);
      break;
    case 4:
      outer_block<4>(groups, outputs, tile, out_gradients, to, to_step);
      break;
    case 5:
      outer_block<5>(groups, outputs, tile, out_gradients, to, to_step);
      break;
    default:
      outer_block<6>(groups, outputs, tile, out_gradients, to, to_step);
      break;
  }
}

void weight_gradient(int inputs, int outputs, std::size_t groups, const float* tiles, const float* out_gradients, float* gradient) {
  const Blocks blocks{outputs};
  HWY_ALIGN float partial[kBlock * kGroup];
  for (int block = 0; block < blocks.blocks; ++block) {
    const int begin = blocks.begin(block);
    const float* from = out_gradients + static_cast<std::ptrdiff_t>(begin) * kGroup;
    for (int input = 0; input < inputs; input += kGroup) {
      const float* tile = tiles + static_cast<std::size_t>(input) * groups * kGroup;
      float* to = gradient + static_cast<std::ptrdiff_t>(begin) * inputs + input;
      if (input + kGroup <= inputs) {
        outer(blocks.size(block), groups, outputs, tile, from, to, inputs);
        continue;
      }
      outer(blocks.size(block), groups, outputs, tile, from, partial, kGroup);
      for (int row = 0; row < blocks.size(block); ++row) {
        std::memcpy(to + static_cast<std::ptrdiff_t>(row) * inputs, partial + row * kGroup,
                    sizeof(float) * static_cast<std::size_t>(inputs - input));
      }
    }
  }
}

}  // namespace starling::compute::native::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::compute::native {

HWY_EXPORT(forward);
HWY_EXPORT(input_gradient);
HWY_EXPORT(weight_gradient);

void dense_forward(const DenseShape& shape, const float* in, const float* weights, const float* bias, float* out) {
  HWY_DYNAMIC_DISPATCH(forward)(shape, in, weights, bias, out);
}

void dense_input_gradient(const DenseShape& shape, const float* out_gradient, const float* weights, float* in_gradient) {
  HWY_DYNAMIC_DISPATCH(input_gradient)(shape, out_gradient, weights, in_gradient);
}

void turn_into_tiles(int inputs, const float* in, std::size_t group, std::size_t groups, float* tiles) {
  for (int first = 0; first < inputs; first += kGroup) {
    float* tile = tiles + (static_cast<std::size_t>(first) * groups + group * kGroup) * kGroup;
    const int features = std::min(kGroup, inputs - first);
    const float* from = in + static_cast<std::ptrdiff_t>(first) * kGroup;
    for (int sample = 0; sample < kGroup; ++sample) {
      for (int feature = 0; feature < features; ++feature) tile[sample * kGroup + feature] = from[feature * kGroup + sample];
      for (int feature = features; feature < kGroup; ++feature) tile[sample * kGroup + feature] = 0;
    }
  }
}

void dense_weight_gradient(int inputs, int outputs, std::size_t groups, const float* tiles, const float* out_gradients, float* gradient) {
  HWY_DYNAMIC_DISPATCH(weight_gradient)(inputs, outputs, groups, tiles, out_gradients, gradient);
}

}  // namespace starling::compute::native
#endif
