// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/native/blas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <string>

#include "starling/base/error.h"

namespace starling::compute::native {
namespace {

using Gemm = decltype(&cblas_sgemm);

// Null if there is no OpenBLAS. Never closed: it has threads.
Gemm open_gemm() {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto* set_threads = reinterpret_cast<decltype(&openblas_set_num_threads)>(dlsym(library, "openblas_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
  return reinterpret_cast<Gemm>(dlsym(library, "cblas_sgemm"));
}

Gemm gemm() {
  static const Gemm kGemm = open_gemm();
  return kGemm;
}

CBLAS_TRANSPOSE transposed(const Matrix& matrix) { return matrix.turn == Turn::yes ? CblasTrans : CblasNoTrans; }

}  // namespace

bool gemm_is_available() { return gemm() != nullptr; }

void multiply(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float beta, float* c, std::size_t c_step) {
  STARLING_CHECK(gemm_is_available(), std::string("there is no OpenBLAS"));
  gemm()(CblasRowMajor, transposed(a), transposed(b), static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0f,
         a.data, static_cast<blasint>(a.step), b.data, static_cast<blasint>(b.step), beta, c, static_cast<blasint>(c_step));
}

}  // namespace starling::compute::native
