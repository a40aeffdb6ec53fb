// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One source per reader: the entry that libFuzzer calls, and inputs to start from. With STARLING_FUZZ it is linked with libFuzzer;
// otherwise with driver.cc, which makes a short test of it. An entry returns normally if the reader took the input or threw UserError;
// whatever else happens is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace starling::fuzz {

using Bytes = std::vector<std::uint8_t>;

// Valid inputs of a reader, small.
std::vector<Bytes> seeds();

}  // namespace starling::fuzz

// Its name and its parameters are libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // NOLINT(readability-identifier-naming)
