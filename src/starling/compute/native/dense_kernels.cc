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

// sums[row][v] = first[row] + the sum over k of factor[row × row_step + k × k_step] × from[k][v], for kRows rows. This is forward
// (rows are outputs) and input gradient (rows are inputs) alike.
template <int kRows>
void product_block(int count, const float* HWY_RESTRICT factor, std::ptrdiff_t row_step, std::ptrdiff_t k_step,
                   const float* HWY_RESTRICT from, const float* HWY_RESTRICT first, float* HWY_RESTRICT to) {
  Vector sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    const Vector start = first == nullptr ? hn::Zero(kTag) : hn::Set(kTag, first[row]);
    for (int v = 0; v < kVectors; ++v) sums[row][v] = start;
  }
  for (int k = 0; k < count; ++k) {
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

void product(int rows, int count, const float* factor, std::ptrdiff_t row_step, std::ptrdiff_t k_step, const float* from,
             const float* first, float* to) {
  const Blocks blocks{rows};
  for (int block = 0; block < blocks.blocks; ++block) {
    const int begin = blocks.begin(block);
    const float* block_factor = factor + begin * row_step;
    const float* block_first = first == nullptr ? nullptr : first + begin;
    float* block_to = to + static_cast<std::ptrdiff_t>(begin) * kGroup;
    switch (blocks.size(block)) {
      case 1:
        product_block<1>(count, block_factor, row_step, k_step, from, block_first, block_to);
        break;
      case 2:
        product_block<2>(count, block_factor, row_step, k_step, from, block_first, block_to);
        break;
      case 3:
        product_block<3>(count, block_factor, row_step, k_step, from, block_first, block_to);
        break;
      case 4:
        product_block<4>(count, block_factor, row_step, k_step, from, block_first, block_to);
        break;
      case 5:
        product_block<5>(count, block_factor, row_step, k_step, from, block_first, block_to);
        break;
      default:
        product_block<6>(count, block_factor, row_step, k_step, from, block_first, block_to);
        break;
    }
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

HWY_EXPORT(product);
HWY_EXPORT(weight_gradient);

void dense_forward(int inputs, int outputs, const float* in, const float* weights, const float* bias, float* out) {
  HWY_DYNAMIC_DISPATCH(product)(outputs, inputs, weights, inputs, 1, in, bias, out);
}

void dense_input_gradient(int inputs, int outputs, const float* out_gradient, const float* weights, float* in_gradient) {
  HWY_DYNAMIC_DISPATCH(product)(inputs, outputs, weights, 1, inputs, out_gradient, nullptr, in_gradient);
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
