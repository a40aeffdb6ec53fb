// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Flat vectors as .safetensors files: a length, a JSON header with name, type and shape of every tensor, and the values. The Python library
// "safetensors" and others read them, and what they write from 32-bit floats is read here.
//
//   write_file(path, {safetensors_header(layout, {{"model", "lenet5"}}), bytes_of(weights)}, "weights");
//   Safetensors file = parse_safetensors(read_file(path, "weights"), path);
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "starling/params/layout.h"

namespace starling::run {

struct Safetensors {
  params::Layout layout{};
  std::vector<float> values{};
  std::map<std::string, std::string> metadata{};
};

// What stands before the values. As the slices of a layout lie one after the other, the values that follow are the flat vector itself. How
// many floats are parameters is kept in the metadata, as "parameters".
std::string safetensors_header(const params::Layout& layout, const std::map<std::string, std::string>& metadata);

// The bytes of a flat vector as they stand in a file.
std::string_view bytes_of(std::span<const float> values);

// Reads the bytes of a file; `origin` is its name in messages. Throws UserError that says what is wrong for anything but a complete and
// consistent file of 32-bit floats. Tensors are in the order of their values; without "parameters" in the metadata all of them are.
Safetensors parse_safetensors(std::string_view bytes, const std::string& origin);

}  // namespace starling::run
