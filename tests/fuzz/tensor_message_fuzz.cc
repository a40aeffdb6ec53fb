// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// An input is a message to a tensor channel: two bytes for the length of the head, the head, and the payload's bytes.
#include <algorithm>
#include <cstring>
#include <string>

#include "fuzz/fuzz.h"
#include "starling/base/error.h"
#include "starling/tensor/wire.h"

namespace starling::tensor {
namespace {

fuzz::Bytes input(const std::vector<std::uint64_t>& head, std::size_t payload_bytes) {
  fuzz::Bytes bytes(2 + head.size() * sizeof(std::uint64_t) + payload_bytes);
  bytes[0] = static_cast<std::uint8_t>(head.size() * sizeof(std::uint64_t));
  bytes[1] = static_cast<std::uint8_t>(head.size() * sizeof(std::uint64_t) >> 8);
  std::memcpy(bytes.data() + 2, head.data(), head.size() * sizeof(std::uint64_t));
  return bytes;
}

fuzz::Bytes seed(Form form, DType dtype, const Extents& shape, const std::vector<std::int64_t>& rows, const params::Stamp& stamp) {
  std::vector<std::uint64_t> head;
  write_head(form, dtype, shape, rows, stamp, head);
  Header header{.form = form, .dtype = dtype, .shape = shape, .stamp = {}, .rows = rows};
  return input(head, *byte_count(dtype, header.value_shape()));
}

// What was read keeps the promises of read_head(), and writes itself the same way.
void check(const fabric::Payload& payload, const Header& header) {
  const Extents shape = header.value_shape();
  STARLING_CHECK(header.form == Form::encoded || byte_count(header.dtype, shape) == payload.size_bytes(), header.describe());
  std::int64_t previous = -1;
  for (const std::int64_t row : header.rows) {
    STARLING_CHECK(row > previous && row < header.shape.front(), header.describe());
    previous = row;
  }
  std::vector<std::uint64_t> again;
  write_head(header.form, header.dtype, header.shape, header.rows, header.stamp, again);
  STARLING_CHECK(std::ranges::equal(std::as_bytes(std::span(again)), payload.head()), header.describe());
}

}  // namespace
}  // namespace starling::tensor

std::vector<starling::fuzz::Bytes> starling::fuzz::seeds() {
  using namespace starling::tensor;
  params::Stamp stamp{.id = {.origin = 1, .number = 7}, .version = 3, .contents = params::VersionVector(3), .value = 0.5};
  stamp.contents[0] = params::NumberSet(4);
  stamp.contents[2].insert(9);
  return {seed(Form::dense, DType::f32, {5}, {}, {}),
          seed(Form::dense, DType::bf16, {2, 0, 3}, {}, stamp),
          seed(Form::dense, DType::u8, {}, {}, stamp),
          seed(Form::encoded, DType::f32, {4, 4}, {}, stamp),
          seed(Form::sparse, DType::f64, {10, 2}, {0, 3, 9}, stamp),
          seed(Form::sparse, DType::i64, {10}, {}, {})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  if (size < 2) return 0;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size)).subspan(2);
  const std::size_t head_bytes = std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(data[0] | data[1] << 8));
  fabric::Payload payload = fabric::Payload::copy_of(bytes.subspan(head_bytes));
  payload.set_head(bytes.first(head_bytes));
  tensor::Header header;
  if (!tensor::read_head(payload, header)) tensor::check(payload, header);
  return 0;
}
