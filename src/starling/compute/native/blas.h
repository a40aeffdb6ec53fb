// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The one matrix product that is left to OpenBLAS, kept to the calling thread: a worker is one thread, and workers share the machine.
//
// OpenBLAS is opened when it is first asked for, not linked: it starts a thread per core as soon as it is loaded, and few models need it.
#pragma once

#include <cstddef>

namespace starling::compute::native {

// Whether there is an OpenBLAS to open. Thread-safe.
bool gemm_is_available();

enum class Turn { no, yes };

// A matrix stored by rows, which are `step` floats apart; turned, it stands for its transpose.
struct Matrix {
  const float* data;
  std::size_t step;
  Turn turn = Turn::no;
};

// c[m][n] = a × b + beta × c; a is m × k and b is k × n after turning. Precondition: gemm_is_available().
void multiply(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float beta, float* c, std::size_t c_step);

}  // namespace starling::compute::native
