// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/call.h"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <stdexcept>
#include <string_view>

namespace starling::fabric::mpi {

void call(const char* name, int code) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw std::runtime_error(fmt::format("{} failed: {}", name, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace starling::fabric::mpi
