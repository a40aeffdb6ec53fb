// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The one matrix product that is left to OpenBLAS, kept to the calling thread: a worker is one thread, and workers share the machine.
#pragma once

#include <cstddef>

namespace starling::compute::native {

enum class Turn { no, yes };

// c[m][n] = a × b + beta × c, all stored by rows; a is m × k and b is k × n after turning (transposing). The steps are floats from one
// stored row to the next.
struct Matrix {
  const float* data;
  std::size_t step;
  Turn turn = Turn::no;
};
void multiply(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float beta, float* c, std::size_t c_step);

}  // namespace starling::compute::native
