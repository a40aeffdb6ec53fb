// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "starling/base/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

class File : public testing::Test {
 protected:
  File() : folder_(testing::TempDir() + "starling_file_test_" + std::to_string(::getpid())) { fs::create_directories(folder_); }
  ~File() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  std::string folder_;
};

TEST_F(File, WhatWasWrittenIsRead) {
  const std::string text("one\0two\n", 8);
  write_file(path("a"), {"", text, text}, "test");
  EXPECT_EQ(read_file(path("a"), "test"), text + text);
  write_file(path("a"), {"short"}, "test");
  EXPECT_EQ(read_file(path("a"), "test"), "short");
}

TEST_F(File, AnAtomicWriteReplacesAndLeavesNothingBehind) {
  write_file_atomically(path("a"), "old", "test");
  write_file_atomically(path("a"), "new", "test");
  EXPECT_EQ(read_file(path("a"), "test"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

// A folder in the way makes the rename fail, whoever the user is.
TEST_F(File, AnAtomicWriteThatFailsLeavesTheOldAndNoTemporary) {
  fs::create_directories(path("a/inside"));
  EXPECT_NE(message_of([&] { write_file_atomically(path("a"), "new", "test"); }).find("cannot write the test '" + path("a") + "': "),
            std::string::npos);
  EXPECT_TRUE(fs::exists(path("a/inside")));
  EXPECT_FALSE(fs::exists(path("a.writing")));
}

TEST_F(File, FailuresNameWhatPathReasonAndAHint) {
  EXPECT_EQ(message_of([&] { (void)read_file(path("none"), "weights"); }),
            "cannot read the weights '" + path("none") + "': No such file or directory.");
  EXPECT_EQ(message_of([&] { (void)read_file(folder_, "weights"); }), "cannot read the weights '" + folder_ + "': Is a directory.");
  EXPECT_EQ(message_of([&] { write_file("/dev/full", {"x"}, "metrics"); }),
            "cannot write the metrics '/dev/full': No space left on device. Make room on the disk, or choose a folder on another one.");
  EXPECT_NE(message_of([&] { make_folders("/proc/none/a", "run directory"); }).find("cannot make the run directory '/proc/none/a'"),
            std::string::npos);
}

TEST_F(File, AppendingCutsFirst) {
  write_file(path("log"), {"one\ntwo\nthree\n"}, "log");
  {
    AppendFile log(path("log"), 8, "log");
    EXPECT_EQ(log.size(), 8U);
    log.append("2b\n");
    EXPECT_EQ(log.size(), 11U);
    log.sync();
  }
  EXPECT_EQ(read_file(path("log"), "log"), "one\ntwo\n2b\n");
  EXPECT_EQ(AppendFile(path("log"), 1000, "log").size(), 11U);  // Shorter than it should be: the caller sees.
  EXPECT_NE(message_of([] { AppendFile("/dev/full", 0, "log").append("x"); }).find("No space left"), std::string::npos);
}

TEST_F(File, ALockKeepsOthersOutUntilItIsGone) {
  {
    const FileLock lock(path("lock"), "busy", "lock");
    EXPECT_EQ(message_of([&] { const FileLock second(path("lock"), "busy", "lock"); }), "busy");
  }
  EXPECT_EQ(message_of([&] { const FileLock second(path("lock"), "busy", "lock"); }), "");
}

}  // namespace
}  // namespace starling
