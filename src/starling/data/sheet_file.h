// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// CIFAR-10 as some packages carry it: sheets of images (PNG, 8-bit RGB, one image of 32 × 32 per row of 1024 pixels) and lists of labels
// (JSON arrays of numbers). Read only to be turned into the official binary batches.
//
// Throws UserError, one sentence that starts with `what`, for anything else; the bytes may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "starling/data/cifar_file.h"

namespace starling::data {

// The pixels of a sheet of `images` rows, in the order of binary batches: of each image all reds, all greens, all blues.
Bytes parse_sheet(std::span<const std::uint8_t> bytes, std::size_t images, const std::string& what);

// Exactly `count` labels below kCifarClasses.
Bytes parse_label_list(std::span<const std::uint8_t> bytes, std::size_t count, const std::string& what);

}  // namespace starling::data
