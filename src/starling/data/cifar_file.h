// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A CIFAR-10 binary batch: records of 3073 bytes, each a label and 32 × 32 pixels, all red ones first, then green, then blue, row by row.
//
//   CifarBatch batch = parse_cifar_batch(read_data_file(path, remedy), kCifarBatchRecords, fmt::format("'{}'", path));
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "starling/data/file_bytes.h"

namespace starling::data {

inline constexpr std::size_t kCifarBatchRecords = 10000;  // In each of the six files.
inline constexpr std::size_t kCifarPixelBytes = 3072;
inline constexpr std::size_t kCifarRecordBytes = 1 + kCifarPixelBytes;
inline constexpr int kCifarClasses = 10;

struct CifarBatch {
  Bytes labels{};
  Bytes pixels{};  // kCifarPixelBytes per label.
};

// Throws UserError, one sentence that starts with `what`, unless there are exactly `records` records with labels below 10.
CifarBatch parse_cifar_batch(std::span<const std::uint8_t> bytes, std::size_t records, const std::string& what);

// The other way round. Precondition: sizes that fit together.
Bytes format_cifar_batch(const CifarBatch& batch);

}  // namespace starling::data
