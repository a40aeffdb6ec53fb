// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "starling/base/error.h"

namespace starling::run {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and values are copied as they lie in memory");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kParameters = "parameters";

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // In bytes, from the first value.
  std::uint64_t end = 0;
};

class Parser {
 public:
  Parser(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  Safetensors parse() {
    const std::string_view header = read_header();
    const Json json = Json::parse(header, nullptr, false);
    if (json.is_discarded() || !json.is_object()) fail("its header is not a JSON object");
    Safetensors file;
    std::vector<Tensor> tensors;
    for (const auto& [name, entry] : json.items()) {
      if (name == kMetadata) {
        read_metadata(entry, file.metadata);
      } else {
        tensors.push_back(read_tensor(name, entry));
      }
    }
    std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) { return a.begin < b.begin; });
    place(std::move(tensors), file);
    file.values.resize(values_.size() / sizeof(float));
    if (!values_.empty()) std::memcpy(file.values.data(), values_.data(), values_.size());
    return file;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("'{}' is no safetensors file of 32-bit floats: {}", origin_, what));
  }

  // Splits the file into header, which is returned, and values.
  std::string_view read_header() {
    if (bytes_.size() < kLengthBytes) fail(fmt::format("it has only {} bytes", bytes_.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kLengthBytes);
    const std::size_t rest = bytes_.size() - kLengthBytes;
    if (length > rest)
      fail(fmt::format("its header should have {} bytes, but only {} follow; it is truncated or of another kind", length, rest));
    values_ = bytes_.substr(kLengthBytes + length);
    return bytes_.substr(kLengthBytes, length);
  }

  void read_metadata(const Json& entry, std::map<std::string, std::string>& metadata) const {
    if (!entry.is_object()) fail("its metadata is not a JSON object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail(fmt::format("its metadata '{}' is not a string", key));
      metadata[key] = value.get<std::string>();
    }
  }

  Tensor read_tensor(const std::string& name, const Json& entry) const {
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) {
      fail(fmt::format("tensor '{}' lacks dtype, shape or data_offsets", name));
    }
    if (entry["dtype"] != "F32") fail(fmt::format("tensor '{}' has the dtype {}, not F32", name, entry["dtype"].dump()));
    Tensor tensor{.name = name, .shape = {}};
    const Json& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
      fail(fmt::format("the data_offsets of tensor '{}' are not two numbers", name));
    }
    tensor.begin = offsets[0].get<std::uint64_t>();
    tensor.end = offsets[1].get<std::uint64_t>();
    if (tensor.begin > tensor.end || tensor.end > values_.size()) {
      fail(fmt::format("tensor '{}' has the bytes {} to {}, but there are {}; the file is truncated or altered", name, tensor.begin,
                       tensor.end, values_.size()));
    }
    const std::uint64_t size = read_shape(name, entry["shape"], tensor.shape);
    if (size != tensor.end - tensor.begin) {
      fail(fmt::format("tensor '{}' needs {} bytes by its shape, but has {}", name, size, tensor.end - tensor.begin));
    }
    return tensor;
  }

  // Returns the bytes that a tensor of this shape has.
  std::uint64_t read_shape(const std::string& name, const Json& extents, std::vector<std::int64_t>& shape) const {
    if (!extents.is_array()) fail(fmt::format("the shape of tensor '{}' is not a list", name));
    std::uint64_t size = sizeof(float);
    for (const Json& extent : extents) {
      const std::uint64_t value = extent.is_number_unsigned() ? extent.get<std::uint64_t>() : 0;
      if (value == 0) fail(fmt::format("the shape of tensor '{}' has an extent that is no positive number", name));
      if (value > values_.size() / size) fail(fmt::format("tensor '{}' is larger by its shape than the file", name));
      size *= value;
      shape.push_back(static_cast<std::int64_t>(value));
    }
    return size;
  }

  // The tensors must cover the values without holes and overlaps.
  void place(std::vector<Tensor> tensors, Safetensors& file) const {
    std::uint64_t parameter_bytes = std::numeric_limits<std::uint64_t>::max();
    if (const auto found = file.metadata.find(kParameters); found != file.metadata.end()) {
      std::uint64_t count = 0;
      const std::string& text = found->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
      if (error != std::errc() || end != text.data() + text.size() || count > values_.size() / sizeof(float)) {
        fail(fmt::format("its number of parameters is '{}'", text));
      }
      parameter_bytes = count * sizeof(float);
    }
    std::uint64_t position = 0;
    for (Tensor& tensor : tensors) {
      if (tensor.begin != position)
        fail(fmt::format("tensor '{}' begins at byte {}, not at {}, where the one before ends", tensor.name, tensor.begin, position));
      position = tensor.end;
      const bool parameter = tensor.end <= parameter_bytes;
      if (!parameter && tensor.begin < parameter_bytes) fail(fmt::format("tensor '{}' is partly parameter, partly buffer", tensor.name));
      file.layout.add(std::move(tensor.name), std::move(tensor.shape),
                      parameter ? params::SliceKind::parameter : params::SliceKind::buffer);
    }
    if (position != values_.size()) fail(fmt::format("{} bytes follow the last tensor", values_.size() - position));
  }

  std::string_view bytes_;
  std::string_view values_;
  const std::string& origin_;
};

}  // namespace

std::string safetensors_header(const params::Layout& layout, const std::map<std::string, std::string>& metadata) {
  Json json;
  json[kMetadata] = metadata;
  json[kMetadata][kParameters] = std::to_string(layout.parameter_count());
  for (const params::Slice& slice : layout.slices()) {
    json[slice.name] = {{"dtype", "F32"},
                        {"shape", slice.shape},
                        {"data_offsets", {slice.offset * sizeof(float), (slice.offset + slice.size) * sizeof(float)}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string header(kLengthBytes, '\0');
  std::memcpy(header.data(), &length, kLengthBytes);
  return header + text;
}

std::string_view bytes_of(std::span<const float> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Safetensors parse_safetensors(std::string_view bytes, const std::string& origin) { return Parser(bytes, origin).parse(); }

}  // namespace starling::run
