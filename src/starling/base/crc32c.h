// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// CRC-32C, Castagnoli's checksum, as of iSCSI (RFC 3720, appendix B.4) and of the records of TensorBoard.
//
//   std::uint32_t sum = crc32c("123456789");   // 0xe3069283
#pragma once

#include <cstdint>
#include <string_view>

namespace starling {

// `before` is the checksum of what came before these bytes: crc32c(b, crc32c(a)) is that of a and b together.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

}  // namespace starling
