// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/native/blas.h"

#include <cblas.h>

namespace starling::compute::native {
namespace {

// OpenBLAS starts with a thread per core; set once for the process, whoever comes first.
bool keep_to_one_thread() {
  openblas_set_num_threads(1);
  return true;
}

CBLAS_TRANSPOSE transposed(const Matrix& matrix) { return matrix.turn == Turn::yes ? CblasTrans : CblasNoTrans; }

}  // namespace

void multiply(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float beta, float* c, std::size_t c_step) {
  static const bool kOneThread = keep_to_one_thread();
  static_cast<void>(kOneThread);
  cblas_sgemm(CblasRowMajor, transposed(a), transposed(b), static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0f,
              a.data, static_cast<blasint>(a.step), b.data, static_cast<blasint>(b.step), beta, c, static_cast<blasint>(c_step));
}

}  // namespace starling::compute::native
