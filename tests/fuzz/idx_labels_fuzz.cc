// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <span>

#include "fuzz/fuzz.h"
#include "starling/base/error.h"
#include "starling/data/idx_file.h"
#include "unit/data/made_files.h"

std::vector<starling::fuzz::Bytes> starling::fuzz::seeds() {
  using namespace starling::data;
  return {idx_labels(12), gzip(idx_labels(12)), gzip(idx_labels(1))};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)starling::data::parse_idx_labels(std::span(data, size), 10, "the input");
  } catch (const starling::UserError&) {
    return 0;
  }
  return 0;
}
