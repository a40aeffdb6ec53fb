// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How a tensor travels: its values are the bytes of a payload, everything else is in the payload's head. So memory that is shared or lent
// goes out as it is, whatever stamp it gets.
//
// The head is a sequence of 64-bit words in the machine's byte order (the magic number tells another one):
//
//   magic << 32 | dimensions << 16 | form << 8 | dtype
//   the extents
//   the stamp: origin, number, version, value, and the version vector's own words
//   of sparse rows: their number, and the indices, ascending
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/fabric/payload.h"
#include "starling/params/version_vector.h"
#include "starling/tensor/tensor.h"

namespace starling::tensor {

enum class Form : std::uint8_t {
  dense,    // The payload is the values.
  encoded,  // The payload is what a codec made of f32 values.
  sparse,   // The payload is the values of some rows.
};

struct Header {
  Form form = Form::dense;
  DType dtype = DType::f32;
  Extents shape{};  // Of the whole.
  params::Stamp stamp{};
  std::vector<std::int64_t> rows{};  // Where sparse.

  // The shape of what is in the payload: of a sparse tensor, that of its rows.
  Extents value_shape() const;
  // "f32 [100]", "f32 [100] through a codec", "3 rows of f32 [100, 10]".
  std::string describe() const;
};

// Replaces `words` by the head. Precondition (checked): at most 255 dimensions.
void write_head(Form form, DType dtype, const Extents& shape, std::span<const std::int64_t> rows, const params::Stamp& stamp,
                std::vector<std::uint64_t>& words);

// Reads the head of a payload that came from anywhere. Returns what is wrong with it, if anything is; otherwise the payload has the bytes
// that the header says (of an encoded tensor any number: that is for the codec to check), and rows are distinct, ascending and in the
// shape.
std::optional<std::string> read_head(const fabric::Payload& payload, Header& header);

}  // namespace starling::tensor
