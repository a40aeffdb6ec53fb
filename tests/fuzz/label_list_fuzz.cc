// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <span>

#include "fuzz/fuzz.h"
#include "starling/base/error.h"
#include "starling/data/sheet_file.h"
#include "unit/data/made_files.h"

std::vector<starling::fuzz::Bytes> starling::fuzz::seeds() {
  using namespace starling::data;
  return {text_bytes("[3, 0,9]"), text_bytes("[1,2,[{\"a\":-1.5e3}],null]")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)starling::data::parse_label_list(std::span(data, size), 3, "the input");
  } catch (const starling::UserError&) {
    return 0;
  }
  return 0;
}
