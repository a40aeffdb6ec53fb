// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "starling/base/error.h"
#include "starling/data/cifar_file.h"
#include "starling/data/idx_file.h"
#include "starling/data/sheet_file.h"
#include "unit/data/made_files.h"

namespace starling::data {
namespace {

std::string images_error(const Bytes& bytes) {
  return message_of<UserError>([&] { parse_idx_images(bytes, "'x'"); });
}

std::string labels_error(const Bytes& bytes) {
  return message_of<UserError>([&] { parse_idx_labels(bytes, 10, "'x'"); });
}

Bytes cut(Bytes bytes, std::size_t size) {
  bytes.resize(size);
  return bytes;
}

TEST(IdxFile, PlainAndPackedFilesReadTheSame) {
  const Bytes plain = idx_images(7, 3, 5);
  for (const Bytes& bytes : {plain, gzip(plain)}) {
    const IdxImages images = parse_idx_images(bytes, "'x'");
    EXPECT_EQ(images.count, 7U);
    EXPECT_EQ(images.rows, 3);
    EXPECT_EQ(images.columns, 5);
    EXPECT_EQ(images.pixels, Bytes(plain.begin() + 16, plain.end()));
  }
  for (const Bytes& bytes : {idx_labels(12), gzip(idx_labels(12))}) {
    EXPECT_EQ(parse_idx_labels(bytes, 10, "'x'"), (Bytes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
  }
}

TEST(IdxFile, EveryTruncationIsRejected) {
  const Bytes plain = idx_images(4, 3, 3);
  const Bytes packed = gzip(plain);
  for (std::size_t size = 0; size < plain.size(); ++size) EXPECT_TRUE(has(images_error(cut(plain, size)), "'x' is truncated"));
  for (std::size_t size = 2; size < packed.size(); ++size) EXPECT_TRUE(has(images_error(cut(packed, size)), "'x' is truncated"));
  EXPECT_TRUE(has(images_error(cut(plain, 50)), "promises 52 bytes in all, but there are 50"));
  EXPECT_TRUE(has(labels_error(cut(idx_labels(9), 10)), "promises 17 bytes in all, but there are 10"));
  EXPECT_TRUE(has(labels_error(gzip(cut(idx_labels(9), 10))), "promises 17 bytes in all, but 10 of them can be unpacked"));
}

TEST(IdxFile, WhatFollowsTheEndIsRejected) {
  Bytes plain = idx_images(4, 3, 3);
  plain.push_back(0);
  EXPECT_TRUE(has(images_error(plain), "'x' is too long", "promises 52 bytes in all, but there are 53"));
  EXPECT_TRUE(has(images_error(gzip(plain)), "'x' is too long", "52"));
  Bytes packed = gzip(idx_images(4, 3, 3));
  packed.push_back(0);
  EXPECT_TRUE(has(images_error(packed), "1 bytes follow its gzip stream"));
}

TEST(IdxFile, AWrongMagicNumberIsNamedAndOneOfTheOtherKindExplained) {
  EXPECT_TRUE(has(images_error(text_bytes("hello, this is a text")), "starts with 0x68656c6c, but idx images start with 0x00000803"));
  EXPECT_TRUE(has(images_error(idx_labels(20)), "it holds labels"));
  EXPECT_TRUE(has(labels_error(gzip(idx_images(2, 2, 2))), "it holds images"));
}

TEST(IdxFile, AbsurdDimensionsAreRejectedBeforeAnythingIsAllocated) {
  for (const auto& [count, rows, columns] : std::vector<std::array<std::uint32_t, 3>>{
           {0, 28, 28}, {1, 0, 28}, {1, 28, 0}, {~0U, ~0U, ~0U}, {1U << 31, 1U << 31, 4}, {1, 1U << 20, 1}, {1U << 30, 28, 28}}) {
    Bytes bytes;
    for (const std::uint32_t number : {0x803U, count, rows, columns}) append_big_endian(bytes, number);
    EXPECT_TRUE(has(images_error(bytes), fmt::format("says it holds {} images of {} x {} pixels", count, rows, columns)));
    EXPECT_TRUE(has(images_error(gzip(bytes)), "says it holds"));
  }
  Bytes labels;
  for (const std::uint32_t number : {0x801U, 0U}) append_big_endian(labels, number);
  EXPECT_TRUE(has(labels_error(labels), "says it holds 0 labels"));
}

TEST(IdxFile, ABombUnpacksNoFurtherThanItsHeaderPromises) {
  Bytes bomb = idx_images(4, 3, 3);
  bomb.resize(64 << 20);
  const Bytes packed = gzip(bomb);
  const Unpacked unpacked = unpack_gzip(packed, 53, "'x'");
  EXPECT_EQ(unpacked.end, Unpacked::End::more);
  EXPECT_EQ(unpacked.bytes.size(), 53U);
  EXPECT_TRUE(has(images_error(packed), "'x' is too long"));
  // A header that promises a gigabyte gets no memory for what is not there.
  Bytes promise;
  for (const std::uint32_t number : {0x803U, 1U << 18, 64U, 64U}) append_big_endian(promise, number);
  EXPECT_TRUE(has(images_error(gzip(promise)), "'x' is truncated", "but 16 of them"));
}

TEST(IdxFile, DamageToAStreamIsRejectedOrChangesNothing) {
  const Bytes plain = idx_images(4, 3, 3);
  const Bytes packed = gzip(plain);
  std::size_t rejected = 0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    Bytes damaged = packed;
    damaged[i] ^= 0x10;
    // The time in the gzip header, or the bits that fill up the last byte, mean nothing.
    try {
      EXPECT_EQ(parse_idx_images(damaged, "'x'").pixels, Bytes(plain.begin() + 16, plain.end())) << "byte " << i;
    } catch (const UserError&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, packed.size() * 3 / 4);
  Bytes damaged = packed;
  damaged[packed.size() - 8] ^= 1;
  EXPECT_TRUE(has(images_error(damaged), "'x' is damaged", "incorrect data check"));
}

TEST(IdxFile, ALabelOutOfRangeIsNamed) {
  Bytes labels = idx_labels(20);
  labels[8 + 13] = 10;
  EXPECT_EQ(labels_error(labels), "'x': label 13 is 10, but there are 10 classes, 0 to 9");
  EXPECT_EQ(labels_error(gzip(labels)), "'x': label 13 is 10, but there are 10 classes, 0 to 9");
}

TEST(CifarFile, RecordsComeApartAndTogetherAgain) {
  const Bytes bytes = cifar_batch(12);
  const CifarBatch batch = parse_cifar_batch(bytes, 12, "'x'");
  EXPECT_EQ(batch.labels, (Bytes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
  EXPECT_EQ(batch.pixels[3072 * 5], 5);
  EXPECT_EQ(batch.pixels.size(), 12U * 3072);
  EXPECT_EQ(format_cifar_batch(batch), bytes);
}

TEST(CifarFile, DamageIsRejected) {
  const auto error = [](const Bytes& bytes) { return message_of<UserError>([&] { parse_cifar_batch(bytes, 3, "'x'"); }); };
  const Bytes good = cifar_batch(3);
  EXPECT_EQ(error(cut(good, 3 * 3073 - 1)), "'x' is truncated: a CIFAR-10 batch of 3 images has 9219 bytes, but there are 9218");
  EXPECT_EQ(error(cut(good, 3 * 3073 + 1)), "'x' is too long: a CIFAR-10 batch of 3 images has 9219 bytes, but there are 9220");
  EXPECT_TRUE(has(error({}), "there are 0"));
  Bytes label = good;
  label[2 * 3073] = 255;
  EXPECT_EQ(error(label), "'x': label 2 is 255, but there are 10 classes, 0 to 9");
}

TEST(SheetFile, PixelsOfEachChannelComeTogether) {
  Bytes pixels(2 * 3072);
  for (std::size_t i = 0; i < 2048; ++i) {
    pixels[3 * i] = static_cast<std::uint8_t>(i % 251);
    pixels[3 * i + 1] = static_cast<std::uint8_t>(i % 13);
    pixels[3 * i + 2] = static_cast<std::uint8_t>(i / 1024);
  }
  const Bytes planes = parse_sheet(png(1024, 2, pixels), 2, "'x'");
  ASSERT_EQ(planes.size(), pixels.size());
  for (std::size_t i = 0; i < 2048; ++i) {
    const std::size_t first = i / 1024 * 3072 + i % 1024;
    ASSERT_EQ(planes[first], i % 251) << i;
    ASSERT_EQ(planes[first + 1024], i % 13) << i;
    ASSERT_EQ(planes[first + 2048], i / 1024) << i;
  }
}

TEST(SheetFile, OtherImagesAndDamageAreRejected) {
  const auto error = [](const Bytes& bytes) { return message_of<UserError>([&] { parse_sheet(bytes, 2, "'x'"); }); };
  const Bytes good = png(1024, 2, Bytes(2 * 3072));
  EXPECT_TRUE(has(error({}), "'x' is no PNG image"));
  EXPECT_TRUE(has(error(text_bytes("hello, this is a text")), "'x' is no PNG image"));
  EXPECT_TRUE(has(error(png(1024, 3, Bytes(3 * 3072))), "is 1024 x 3 pixels, but a sheet of images is 1024 x 2"));
  EXPECT_TRUE(has(error(png(1024, 2, Bytes(2048), PNG_FORMAT_GRAY)), "of another kind"));
  for (std::size_t size = 8; size + 12 < good.size(); ++size) EXPECT_NE(error(cut(good, size)), "nothing was thrown") << size;
  for (std::size_t i = 0; i + 12 < good.size(); ++i) {
    Bytes damaged = good;
    damaged[i] ^= 1;
    EXPECT_NE(error(damaged), "nothing was thrown") << "byte " << i;
  }
}

TEST(SheetFile, LabelListsAreChecked) {
  const auto error = [](const char* text) { return message_of<UserError>([&] { parse_label_list(text_bytes(text), 3, "'x'"); }); };
  EXPECT_EQ(parse_label_list(text_bytes("[3, 0,9]"), 3, "'x'"), (Bytes{3, 0, 9}));
  EXPECT_EQ(error("[3,0]"), "'x' holds 2 labels, but 3 are expected");
  EXPECT_EQ(error("[3,0,10]"), "'x': label 2 is 10, but there are 10 classes, 0 to 9");
  EXPECT_TRUE(has(error("[3,-1,0]"), "label 1 is -1"));
  EXPECT_TRUE(has(error("[3,1.5,0]"), "label 1 is 1.5"));
  EXPECT_TRUE(has(error("[3,\"1\",0]"), "label 1 is string"));
  for (const char* text : {"", "[3,0,", "{}", "3", "\xff"}) EXPECT_EQ(error(text), "'x' is no JSON array of labels");
}

TEST(ReadFile, WhatIsNoFileIsRejectedWithARemedy) {
  const Folder folder;
  const auto error = [](const std::string& path) { return message_of<UserError>([&] { read_data_file(path, "buy it"); }); };
  EXPECT_EQ(error(folder / "missing"), "there is no file '" + (folder / "missing") + "': buy it");
  EXPECT_TRUE(has(error(folder.path().string()), "is a folder, but a file is expected there"));
  EXPECT_TRUE(has(error("/dev/zero"), "is not a regular file"));
  write(folder / "large", {1});
  std::filesystem::resize_file(folder / "large", kLargestFile + 1);
  EXPECT_TRUE(has(error(folder / "large"), "has 1073741825 bytes"));
  write(folder / "empty", {});
  EXPECT_TRUE(read_data_file(folder / "empty", "").empty());
}

}  // namespace
}  // namespace starling::data
