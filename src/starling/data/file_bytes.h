// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Whole files as bytes, and gzip streams in memory: what the readers of data sets stand on. Files may come from anywhere, so nothing is
// allocated on the word of a header alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

using Bytes = std::vector<std::uint8_t>;

// Files, and sets of images once unpacked, are refused above this many bytes.
inline constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

// The content of a file. Throws UserError for one that is missing (followed by `remedy`, which says how to get it), is a folder or
// something else that is not a file, is larger than kLargestFile, or cannot be read.
Bytes read_data_file(const std::string& path, const std::string& remedy);

// True for what starts as a gzip stream does.
bool is_gzip(std::span<const std::uint8_t> bytes);

struct Unpacked {
  enum class End { whole, more, broken_off };

  Bytes bytes{};
  End end = End::whole;  // The stream ended here, goes on beyond what was asked for, or its input ends in the middle of it.
};

// The first at most `most` bytes of what the gzip stream holds; never takes more memory than twice that. A stream that ends within them has
// its checksum verified. Throws UserError, which starts with `what`, for a damaged stream and for bytes that follow it.
Unpacked unpack_gzip(std::span<const std::uint8_t> bytes, std::size_t most, const std::string& what);

}  // namespace starling::data
