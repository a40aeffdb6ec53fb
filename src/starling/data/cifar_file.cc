// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/cifar_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "starling/base/error.h"

namespace starling::data {

CifarBatch parse_cifar_batch(std::span<const std::uint8_t> bytes, std::size_t records, const std::string& what) {
  const std::size_t expected = records * kCifarRecordBytes;
  if (bytes.size() != expected) {
    throw UserError(fmt::format("{} is {}: a CIFAR-10 batch of {} images has {} bytes, but there are {}", what,
                                bytes.size() < expected ? "truncated" : "too long", records, expected, bytes.size()));
  }
  CifarBatch batch{.labels = Bytes(records), .pixels = Bytes(records * kCifarPixelBytes)};
  for (std::size_t i = 0; i < records; ++i) {
    const std::span<const std::uint8_t> record = bytes.subspan(i * kCifarRecordBytes, kCifarRecordBytes);
    if (record[0] >= kCifarClasses) {
      throw UserError(
          fmt::format("{}: label {} is {}, but there are {} classes, 0 to {}", what, i, record[0], kCifarClasses, kCifarClasses - 1));
    }
    batch.labels[i] = record[0];
    std::copy(record.begin() + 1, record.end(), batch.pixels.begin() + static_cast<std::ptrdiff_t>(i * kCifarPixelBytes));
  }
  return batch;
}

Bytes format_cifar_batch(const CifarBatch& batch) {
  STARLING_CHECK(batch.pixels.size() == batch.labels.size() * kCifarPixelBytes,
                 fmt::format("{} labels and {} bytes of pixels", batch.labels.size(), batch.pixels.size()));
  Bytes bytes;
  bytes.reserve(batch.labels.size() * kCifarRecordBytes);
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const std::span<const std::uint8_t> pixels = std::span(batch.pixels).subspan(i * kCifarPixelBytes, kCifarPixelBytes);
    bytes.push_back(batch.labels[i]);
    bytes.insert(bytes.end(), pixels.begin(), pixels.end());
  }
  return bytes;
}

}  // namespace starling::data
