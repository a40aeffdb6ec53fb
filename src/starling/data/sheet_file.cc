// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/sheet_file.h"

#include <fmt/format.h>
#include <png.h>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"

namespace starling::data {
namespace {

constexpr std::size_t kPixels = kCifarPixelBytes / 3;

// libpng's record of an image that is being read, freed whichever way the function is left.
struct PngImage {
  png_image image{};

  PngImage() { image.version = PNG_IMAGE_VERSION; }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
  ~PngImage() { png_image_free(&image); }
};

}  // namespace

Bytes parse_sheet(std::span<const std::uint8_t> bytes, std::size_t images, const std::string& what) {
  PngImage png;
  if (png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) == 0) {
    throw UserError(fmt::format("{} is no PNG image: {}", what, png.image.message));
  }
  if (png.image.format != PNG_FORMAT_RGB || png.image.width != kPixels || png.image.height != images) {
    throw UserError(fmt::format("{} is {} x {} pixels{}, but a sheet of images is {} x {} pixels of 8-bit RGB", what, png.image.width,
                                png.image.height, png.image.format == PNG_FORMAT_RGB ? "" : " of another kind", kPixels, images));
  }
  Bytes interleaved(images * kCifarPixelBytes);
  if (png_image_finish_read(&png.image, nullptr, interleaved.data(), 0, nullptr) == 0) {
    throw UserError(fmt::format("{} is damaged or truncated: {}", what, png.image.message));
  }
  // A warning means that libpng went on with data that is not what was written.
  if (png.image.warning_or_error != 0) throw UserError(fmt::format("{} is damaged: {}", what, png.image.message));
  Bytes planes(interleaved.size());
  for (std::size_t image = 0; image < images; ++image) {
    const std::uint8_t* from = interleaved.data() + image * kCifarPixelBytes;
    std::uint8_t* to = planes.data() + image * kCifarPixelBytes;
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
      for (std::size_t channel = 0; channel < 3; ++channel) to[channel * kPixels + pixel] = from[3 * pixel + channel];
    }
  }
  return planes;
}

Bytes parse_label_list(std::span<const std::uint8_t> bytes, std::size_t count, const std::string& what) {
  const nlohmann::json list = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (list.is_discarded() || !list.is_array()) throw UserError(fmt::format("{} is no JSON array of labels", what));
  if (list.size() != count) throw UserError(fmt::format("{} holds {} labels, but {} are expected", what, list.size(), count));
  Bytes labels;
  for (const nlohmann::json& label : list) {
    if (!label.is_number_unsigned() || label.get<std::uint64_t>() >= kCifarClasses) {
      throw UserError(fmt::format("{}: label {} is {}, but there are {} classes, 0 to {}", what, labels.size(),
                                  label.is_number() ? label.dump() : label.type_name(), kCifarClasses, kCifarClasses - 1));
    }
    labels.push_back(static_cast<std::uint8_t>(label.get<std::uint64_t>()));
  }
  return labels;
}

}  // namespace starling::data
