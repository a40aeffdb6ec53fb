// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <span>

#include "fuzz/fuzz.h"
#include "starling/base/error.h"
#include "starling/data/sheet_file.h"
#include "unit/data/made_files.h"

std::vector<starling::fuzz::Bytes> starling::fuzz::seeds() {
  using namespace starling::data;
  return {png(1024, 1, Bytes(3072)), png(1024, 1, cifar_batch(1)), png(4, 4, Bytes(48))};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)starling::data::parse_sheet(std::span(data, size), 1, "the input");
  } catch (const starling::UserError&) {
    return 0;
  }
  return 0;
}
