// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <span>

#include "fuzz/fuzz.h"
#include "starling/base/error.h"
#include "starling/data/cifar_file.h"
#include "unit/data/made_files.h"

std::vector<starling::fuzz::Bytes> starling::fuzz::seeds() {
  using namespace starling::data;
  return {cifar_batch(2)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)starling::data::parse_cifar_batch(std::span(data, size), 2, "the input");
  } catch (const starling::UserError&) {
    return 0;
  }
  return 0;
}
