// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The idx format of MNIST and Fashion-MNIST, plain or packed by gzip (told apart by their first bytes):
//   images: 0x00000803, count, rows, columns (32-bit, big-endian), then one byte per pixel, row by row
//   labels: 0x00000801, count, then one byte per label
//
//   IdxImages images = parse_idx_images(read_data_file(path, remedy), fmt::format("'{}'", path));
//
// A file is taken as a whole or not at all. Throws UserError, one sentence that starts with `what`, for the wrong magic number, absurd
// dimensions, a truncated or too long file, a damaged gzip stream and a label out of range. The bytes may be hostile: memory stays within a
// small multiple of what they hold and kLargestFile.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "starling/data/file_bytes.h"

namespace starling::data {

struct IdxImages {
  std::size_t count = 0;
  int rows = 0;
  int columns = 0;
  Bytes pixels{};  // count × rows × columns.
};

IdxImages parse_idx_images(std::span<const std::uint8_t> bytes, const std::string& what);

// Labels, each checked to be below `classes`.
Bytes parse_idx_labels(std::span<const std::uint8_t> bytes, int classes, const std::string& what);

}  // namespace starling::data
