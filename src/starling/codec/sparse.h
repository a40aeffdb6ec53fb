// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Some components of a vector as bytes, for top-k and DGC: the header, whose number is k; k gaps, each the number of components left out
// since the one before, seven bits to a byte, the lowest first, with 128 in all bytes but the last; k floats. Indices ascend by
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace starling::codec {

// The most bytes for k components of `count`.
std::size_t largest_sparse_bytes(std::size_t count, std::size_t k);

// Replaces `bytes` by values[indices[0]], …. Indices ascend.
void encode_sparse(std::span<const float> values, std::span<const std::uint32_t> indices, std::vector<std::byte>& bytes);

// Overwrites all of `values`, with zero where nothing was sent; returns what is wrong, if anything is.
[[nodiscard]] std::optional<std::string> decode_sparse(std::span<const std::byte> bytes, std::span<float> values);

}  // namespace starling::codec
