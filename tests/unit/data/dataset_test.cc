// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/dataset.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "unit/data/made_files.h"

namespace starling::data {
namespace {

std::string error_of(const std::string& specification, const std::string& folder) {
  return message_of<UserError>([&] { load_dataset(specification, folder); });
}

// A small MNIST: 30 images for training, 20 for testing, some of the files packed.
void make_small_mnist(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  write(folder / "train-images-idx3-ubyte", idx_images(30, 4, 4));
  write(folder / "train-labels-idx1-ubyte.gz", gzip(idx_labels(30)));
  write(folder / "t10k-images-idx3-ubyte.gz", gzip(idx_images(20, 4, 4)));
  write(folder / "t10k-labels-idx1-ubyte", idx_labels(20));
}

TEST(FashionMnist, TheDebianPackageReadsAsPublished) {
  const Dataset data = load_dataset("fashion-mnist", "");
  EXPECT_EQ(data.train.count, 60000U);
  EXPECT_EQ(data.test.count, 10000U);
  EXPECT_EQ(data.train.shape, (Shape{.channels = 1, .height = 28, .width = 28}));
  ASSERT_EQ(data.class_names.size(), 10U);
  EXPECT_EQ(data.class_names[9], "Ankle boot");
  EXPECT_EQ(data.train.labels[0], 9);
  std::array<int, 10> train{};
  std::array<int, 10> test{};
  for (const std::int32_t label : data.train.labels) ++train.at(static_cast<std::size_t>(label));
  for (const std::int32_t label : data.test.labels) ++test.at(static_cast<std::size_t>(label));
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(train.at(i), 6000);
    EXPECT_EQ(test.at(i), 1000);
  }
  const double deviation = 1 / static_cast<double>(data.train.standardisation[0].scale) / 255;
  EXPECT_NEAR(-static_cast<double>(data.train.standardisation[0].shift) * deviation, 0.2860, 5e-5);
  EXPECT_NEAR(deviation, 0.3530, 5e-5);
  EXPECT_EQ(data.test.standardisation, data.train.standardisation);
}

TEST(FashionMnist, OptionsTakeTheFirstSamples) {
  const Dataset data = load_dataset("fashion-mnist:train=600,test=100", "");
  EXPECT_EQ(data.train.count, 600U);
  EXPECT_EQ(data.train.labels.size(), 600U);
  EXPECT_EQ(data.train.bytes.size(), 600U * 784);
  EXPECT_EQ(data.test.count, 100U);
  EXPECT_EQ(data.train.labels[0], 9);
}

TEST(Mnist, AFolderOrOneNamedForTheSetInsideItIsFound) {
  const Folder folder;
  make_small_mnist(folder.path() / "mnist");
  for (const std::string& place : {folder.path().string(), folder / "mnist"}) {
    const Dataset data = load_dataset("mnist", place);
    EXPECT_EQ(data.train.count, 30U);
    EXPECT_EQ(data.test.count, 20U);
    EXPECT_EQ(data.train.shape.width, 4);
    EXPECT_EQ(data.train.bytes[17], 17);
    EXPECT_EQ(data.test.labels[11], 1);
    EXPECT_EQ(data.class_names[3], "3");
  }
  const std::vector<DatasetEntry> entries = list_datasets(folder.path().string());
  ASSERT_EQ(entries.size(), dataset_names().size());
  EXPECT_EQ(entries[1].name, "mnist");
  EXPECT_EQ(entries[1].folder, folder / "mnist");
  EXPECT_EQ(entries[2].folder, "") << "cifar10 is not there";
}

TEST(Mnist, WhatIsMissingIsSaidWithWhatBringsIt) {
  const Folder folder;
  EXPECT_TRUE(has(error_of("mnist", folder.path().string()), fmt::format("there are no files of mnist in '{}' or '", folder / "mnist")));
  EXPECT_TRUE(has(error_of("mnist", folder.path().string()), "'starling data fetch mnist' brings it"));
  EXPECT_TRUE(has(error_of("fashion-mnist", folder.path().string()), "the Debian package dataset-fashion-mnist brings it"));
  EXPECT_TRUE(has(error_of("cifar10", folder.path().string()), "'starling data fetch cifar10' brings it"));
  make_small_mnist(folder.path());
  std::filesystem::remove(folder / "t10k-labels-idx1-ubyte");
  EXPECT_EQ(error_of("mnist", folder.path().string()),
            fmt::format("there is no file '{}': 'starling data fetch mnist' brings it", folder / "t10k-labels-idx1-ubyte"));
  std::filesystem::create_directory(folder / "t10k-labels-idx1-ubyte");
  EXPECT_TRUE(has(error_of("mnist", folder.path().string()), "t10k-labels-idx1-ubyte' is a folder, but a file is expected there"));
}

TEST(Mnist, FilesThatDoNotBelongTogetherAreRejected) {
  const Folder folder;
  make_small_mnist(folder.path());
  write(folder / "t10k-labels-idx1-ubyte", idx_labels(19));
  EXPECT_TRUE(has(error_of("mnist", folder.path().string()),
                  fmt::format("holds 20 images, but '{}' holds 19 labels", folder / "t10k-labels-idx1-ubyte")));
  write(folder / "t10k-labels-idx1-ubyte", idx_labels(20));
  write(folder / "t10k-images-idx3-ubyte.gz", gzip(idx_images(20, 4, 5)));
  EXPECT_TRUE(has(error_of("mnist", folder.path().string()), "have 4 x 4 pixels, but those for testing 4 x 5"));
  EXPECT_TRUE(has(error_of("mnist:train=0", folder.path().string()), "a whole number from 1"));
  make_small_mnist(folder.path());
  EXPECT_TRUE(has(error_of("mnist:train=31", folder.path().string()), "is 31, but there are 30 samples"));
}

TEST(Mnist, AnErrorNamesTheFile) {
  const Folder folder;
  make_small_mnist(folder.path());
  write(folder / "train-images-idx3-ubyte", idx_labels(30));
  EXPECT_TRUE(
      has(error_of("mnist", folder.path().string()), fmt::format("'{}' starts with 0x00000801", folder / "train-images-idx3-ubyte")));
}

TEST(Cifar10, SixBatchesAreReadInTheirOrder) {
  const Folder folder;
  for (const std::string name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    Bytes first(3073, static_cast<std::uint8_t>(name[name.size() - 1]));
    first[0] = static_cast<std::uint8_t>(name[name.size() - 1] % 10);
    write(folder / (name + ".bin"), first);
    std::filesystem::resize_file(folder / (name + ".bin"), 30730000);
  }
  const Dataset data = load_dataset("cifar10:test=2", folder.path().string());
  EXPECT_EQ(data.train.count, 50000U);
  EXPECT_EQ(data.train.bytes.size(), 50000U * 3072);
  EXPECT_EQ(data.test.count, 2U);
  EXPECT_EQ(data.train.shape, (Shape{.channels = 3, .height = 32, .width = 32}));
  EXPECT_EQ(data.train.standardisation.size(), 3U);
  EXPECT_EQ(data.class_names[6], "frog");
  for (std::size_t batch = 0; batch < 5; ++batch) {
    EXPECT_EQ(data.train.bytes[batch * 10000 * 3072 + 3071], '1' + batch);
    EXPECT_EQ(data.train.labels[batch * 10000], static_cast<std::int32_t>(('1' + batch) % 10));
  }
  std::filesystem::resize_file(folder / "data_batch_3.bin", 30730000 - 3073);
  EXPECT_TRUE(has(error_of("cifar10", folder.path().string()), "data_batch_3.bin' is truncated"));
}

}  // namespace
}  // namespace starling::data
