// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/tensor/wire.h"

#include <fmt/format.h>

#include <bit>
#include <limits>

namespace starling::tensor {
namespace {

constexpr std::uint64_t kMagic = 0x5354524c;  // "STRL"
constexpr std::size_t kStampWords = 4;        // Before the version vector.
constexpr std::size_t kMostDimensions = 255;

using Words = std::span<const std::uint64_t>;

std::uint64_t take(Words& words) {
  const std::uint64_t word = words.front();
  words = words.subspan(1);
  return word;
}

std::optional<std::string> read_first(std::uint64_t word, Header& header, std::size_t& dimensions) {
  if (word >> 32 != kMagic) return "it does not begin as one";
  const std::uint64_t dtype = word & 0xff;
  const std::uint64_t form = word >> 8 & 0xff;
  if (dtype > static_cast<std::uint64_t>(DType::u8)) return fmt::format("there is no type {}", dtype);
  if (form > static_cast<std::uint64_t>(Form::sparse)) return fmt::format("there is no form {}", form);
  header.dtype = static_cast<DType>(dtype);
  header.form = static_cast<Form>(form);
  dimensions = word >> 16 & 0xffff;
  if (dimensions > kMostDimensions) return fmt::format("it has {} dimensions", dimensions);
  return std::nullopt;
}

std::optional<std::string> read_stamp(Words& words, params::Stamp& stamp) {
  if (words.size() < kStampWords) return "its stamp is cut off";
  const auto origin = static_cast<std::int64_t>(take(words));
  if (origin < -1 || origin > std::numeric_limits<int>::max()) return fmt::format("it comes from rank {}", origin);
  stamp.id.origin = static_cast<int>(origin);
  stamp.id.number = take(words);
  stamp.version = take(words);
  stamp.value = std::bit_cast<double>(take(words));
  std::optional<params::VersionVector> contents = params::VersionVector::read(words);
  if (!contents) return "its version vector is none";
  stamp.contents = std::move(*contents);
  return std::nullopt;
}

std::optional<std::string> read_rows(Words& words, Header& header) {
  header.rows.clear();
  if (header.form != Form::sparse) return std::nullopt;
  if (header.shape.empty()) return "it has sparse rows but no dimension";
  if (words.empty()) return "its rows are cut off";
  const std::uint64_t count = take(words);
  if (count > words.size()) return fmt::format("it says it has {} rows and names {}", count, words.size());
  header.rows.reserve(count);
  std::int64_t previous = -1;
  for (std::uint64_t index = 0; index < count; ++index) {
    const auto row = static_cast<std::int64_t>(words[index]);
    if (row <= previous || row >= header.shape.front()) {
      return fmt::format("its row {} comes after {}, of {}", row, previous, header.shape.front());
    }
    header.rows.push_back(row);
    previous = row;
  }
  words = words.subspan(count);
  return std::nullopt;
}

}  // namespace

Extents Header::value_shape() const {
  Extents result = shape;
  if (form == Form::sparse) result.front() = static_cast<std::int64_t>(rows.size());
  return result;
}

std::string Header::describe() const {
  const std::string whole = tensor::describe(dtype, shape);
  if (form == Form::sparse) return fmt::format("{} rows of {}", rows.size(), whole);
  return form == Form::encoded ? fmt::format("{} through a codec", whole) : whole;
}

void write_head(Form form, DType dtype, const Extents& shape, std::span<const std::int64_t> rows, const params::Stamp& stamp,
                std::vector<std::uint64_t>& words) {
  STARLING_CHECK(shape.size() <= kMostDimensions, fmt::format("a tensor of {} dimensions", shape.size()));
  words.clear();
  words.push_back(kMagic << 32 | shape.size() << 16 | static_cast<std::uint64_t>(form) << 8 | static_cast<std::uint64_t>(dtype));
  for (const std::int64_t extent : shape) words.push_back(static_cast<std::uint64_t>(extent));
  words.push_back(static_cast<std::uint64_t>(static_cast<std::int64_t>(stamp.id.origin)));
  words.push_back(stamp.id.number);
  words.push_back(stamp.version);
  words.push_back(std::bit_cast<std::uint64_t>(stamp.value));
  stamp.contents.write(words);
  if (form != Form::sparse) return;
  words.push_back(rows.size());
  for (const std::int64_t row : rows) words.push_back(static_cast<std::uint64_t>(row));
}

std::optional<std::string> read_head(const fabric::Payload& payload, Header& header) {
  const std::span<const std::byte> head = payload.head();
  if (head.empty()) return "it has no head";
  if (head.size() % sizeof(std::uint64_t) != 0) return fmt::format("its head has {} bytes", head.size());
  Words words(reinterpret_cast<const std::uint64_t*>(head.data()), head.size() / sizeof(std::uint64_t));

  std::size_t dimensions = 0;
  if (auto error = read_first(take(words), header, dimensions)) return error;
  if (dimensions > words.size()) return fmt::format("it has {} dimensions and names {}", dimensions, words.size());
  header.shape.clear();
  for (std::size_t index = 0; index < dimensions; ++index) header.shape.push_back(static_cast<std::int64_t>(take(words)));
  if (!byte_count(header.dtype, header.shape)) return fmt::format("there is no {}", describe(header.dtype, header.shape));
  if (auto error = read_stamp(words, header.stamp)) return error;
  if (auto error = read_rows(words, header)) return error;
  if (!words.empty()) return fmt::format("its head goes on for {} words", words.size());

  if (header.form == Form::encoded) {
    if (header.dtype != DType::f32) return fmt::format("it is {}, which no codec takes", header.describe());
    return std::nullopt;
  }
  // Rows of a whole that can be are fewer bytes than it, so that they have a size too.
  const std::optional<std::size_t> bytes =
      header.form == Form::sparse ? byte_count(header.dtype, header.value_shape()) : byte_count(header.dtype, header.shape);
  if (bytes != payload.size_bytes()) {
    return fmt::format("it says it is {} and has {} bytes instead of {}", header.describe(), payload.size_bytes(), bytes.value_or(0));
  }
  return std::nullopt;
}

}  // namespace starling::tensor
