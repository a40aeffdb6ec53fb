// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes against bytes that were worked out from the formats by hand. What a whole run leaves is read by tests/report/event_file_test.py,
// which shares no code with the writer.
#include "starling/lab/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/base/random.h"
#include "starling/run/train_observers.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

TEST(EventFile, NumbersAreVarints) {
  EXPECT_EQ(encode_varint(0), bytes({0}));
  EXPECT_EQ(encode_varint(1), bytes({1}));
  EXPECT_EQ(encode_varint(127), bytes({0x7f}));
  EXPECT_EQ(encode_varint(128), bytes({0x80, 1}));
  EXPECT_EQ(encode_varint(300), bytes({0xac, 2}));  // The example in the documentation of protocol buffers.
  EXPECT_EQ(encode_varint(std::uint64_t{1} << 35), bytes({0x80, 0x80, 0x80, 0x80, 0x80, 1}));
  EXPECT_EQ(encode_varint(std::numeric_limits<std::uint64_t>::max()), std::string(9, '\xff') + '\x01');
}

TEST(EventFile, VarintsAreReadBack) {
  constexpr std::uint64_t kSeed = 11;
  RandomStream stream(kSeed, 0, "test");
  for (int trial = 0; trial < 500; ++trial) {
    const std::uint64_t value = stream.next_u64() >> stream.below(64);
    std::uint64_t again = 0;
    int shift = 0;
    const std::string encoded = encode_varint(value);
    for (const char byte : encoded) {
      again |= (static_cast<std::uint64_t>(byte) & 0x7f) << shift;
      shift += 7;
    }
    EXPECT_EQ(again, value) << "seed " << kSeed << ", trial " << trial;
    EXPECT_EQ(encoded.back() & 0x80, 0) << "seed " << kSeed << ", trial " << trial;
  }
}

TEST(EventFile, TheVersionOfTheFileIsFieldThree) {
  // Field 1, eight bytes: 1.5; field 3, 13 bytes.
  EXPECT_EQ(encode_file_version(1.5), bytes({0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x1a, 13}) + "brain.Event:2");
}

TEST(EventFile, TheStartOfASessionIsFieldSeven) {
  // Field 2, varint: 300; field 7, a message whose field 1 is 1.
  EXPECT_EQ(encode_session_start(0, 300), bytes({0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0xac, 2, 0x3a, 2, 0x08, 1}));
}

TEST(EventFile, ScalarsAreASummaryOfTagsAndFloats) {
  const std::vector<EventScalar> scalars{{.tag = "a/b", .value = 1}, {.tag = "c", .value = -2.5}};
  const std::string expected = bytes({0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 7, 0x2a, 22}) +              // Field 5: 22 bytes.
                               bytes({0x0a, 10, 0x0a, 3}) + "a/b" + bytes({0x15, 0, 0, 0x80, 0x3f}) +  // 1.0f.
                               bytes({0x0a, 8, 0x0a, 1}) + "c" + bytes({0x15, 0, 0, 0x20, 0xc0});      // -2.5f.
  EXPECT_EQ(encode_scalars(0, 7, scalars), expected);
}

TEST(EventFile, ARecordHasItsLengthAndTwoMaskedChecksums) {
  // Of the length 0 (eight zeros, CRC-32C 8c28b28a) and of no bytes (CRC-32C 0): rotated right by 15, and a282ead8 added.
  EXPECT_EQ(framed_record(""), bytes({0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2}));
  const std::string record = framed_record("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), bytes({3, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

TEST(EventFile, OnlyWhatARecordHasIsShown) {
  const auto tags = [](const run::MetricsRecord& record) {
    std::vector<std::string> result;
    for (const EventScalar& scalar : scalars_of(record)) result.push_back(scalar.tag);
    return result;
  };
  const std::vector<std::string> always{
      "throughput/samples_per_second", "progress/epoch", "progress/samples", "progress/seconds", "schedule/lr", "schedule/batch"};
  EXPECT_EQ(tags({}), always);
  run::MetricsRecord full{.kind = "epoch", .loss = 1, .gradient_norm = 2, .weight_norm = 3, .applications = 4, .staleness = 5};
  full.skew = 6;
  full.bytes_sent = 7;
  full.train_loss = 8;
  full.test_loss = 9;
  full.test_accuracy = 0.5;
  const std::vector<EventScalar> scalars = scalars_of(full);
  EXPECT_EQ(scalars.size(), always.size() + 10);
  const auto value = [&](const std::string& tag) {
    const auto found = std::find_if(scalars.begin(), scalars.end(), [&](const EventScalar& scalar) { return scalar.tag == tag; });
    return found == scalars.end() ? -1 : found->value;
  };
  EXPECT_EQ(value("train/batch_loss"), 1);
  EXPECT_EQ(value("train/gradient_norm"), 2);
  EXPECT_EQ(value("weights/norm"), 3);
  EXPECT_EQ(value("exchange/applications"), 4);
  EXPECT_EQ(value("staleness/mean"), 5);
  EXPECT_EQ(value("staleness/skew"), 6);
  EXPECT_EQ(value("exchange/bytes_sent"), 7);
  EXPECT_EQ(value("train/loss"), 8);
  EXPECT_EQ(value("test/loss"), 9);
  EXPECT_EQ(value("test/accuracy"), 0.5);
}

class EventLogTest : public testing::Test {
 protected:
  EventLogTest() : folder_(testing::TempDir() + "starling_event_file_" + std::to_string(::getpid())) { fs::remove_all(folder_); }
  ~EventLogTest() override { fs::remove_all(folder_); }

  std::string folder_;
};

TEST_F(EventLogTest, EveryRecordIsInTheFileAtOnce) {
  EventLog log(folder_, {});
  const run::MetricsRecord record{.kind = "step", .step = 5, .seconds = 2.5, .loss = 0.25};
  std::string expected = framed_record(encode_file_version(0)) + framed_record(encode_session_start(0, 0));
  EXPECT_EQ(read_file(log.path(), "events"), expected);
  log.recorded(record);
  expected += framed_record(encode_scalars(2.5, 5, scalars_of(record)));  // Without a clock, at the seconds of the record.
  EXPECT_EQ(read_file(log.path(), "events"), expected);
  EXPECT_EQ(log.failure(), "");
}

TEST_F(EventLogTest, ARunThatGoesOnBeginsAnotherFileThatComesLaterByName) {
  std::vector<std::string> paths;
  for (int i = 0; i < 12; ++i) {
    EventLog log(folder_, {.first_step = 7, .seconds = 3});
    EXPECT_EQ(read_file(log.path(), "events"), framed_record(encode_file_version(3)) + framed_record(encode_session_start(3, 7)));
    paths.push_back(log.path());
  }
  EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end()));
  EXPECT_EQ(std::adjacent_find(paths.begin(), paths.end()), paths.end());
  for (const std::string& path : paths) EXPECT_NE(path.find("tfevents"), std::string::npos) << path;
}

TEST_F(EventLogTest, AClockGivesTheTimesOfEvents) {
  double now = 1e9;
  EventLog log(folder_, {.wall_clock = [&] { return now; }});
  now += 60;
  const run::MetricsRecord record{.kind = "step", .step = 1, .seconds = 2.5};
  log.recorded(record);
  EXPECT_EQ(read_file(log.path(), "events"), framed_record(encode_file_version(1e9)) + framed_record(encode_session_start(1e9, 0)) +
                                                 framed_record(encode_scalars(1e9 + 60, 1, scalars_of(record))));
}

TEST_F(EventLogTest, AFolderThatCannotBeMadeIsTheUsersError) {
  fs::create_directories(folder_);
  write_file(folder_ + "/file", {"x"}, "file");
  EXPECT_THROW(EventLog(folder_ + "/file", {}), UserError);
}

// A limit on the size of files stands for a disk that is full.
TEST_F(EventLogTest, ADiskThatIsFullEndsTheLogButNotTheRun) {
  EventLog log(folder_, {});
  const std::string begun = read_file(log.path(), "events");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = begun.size(), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  log.recorded({.kind = "step", .step = 1});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(log.failure().find("cannot write the log for TensorBoard"), std::string::npos) << log.failure();
  log.recorded({.kind = "step", .step = 2});  // A log with a gap would be taken for a whole one.
  EXPECT_EQ(read_file(log.path(), "events"), begun);
}

TEST(TrainObservers, AllHearAllInTheOrderInWhichTheyWereGiven) {
  class Listener final : public run::TrainObserver {
   public:
    Listener(std::string name, std::vector<std::string>& heard) : name_(std::move(name)), heard_(heard) {}
    void progressed(const run::Progress& progress) override { hear("progressed", progress.step); }
    void epoch_ended(const run::Progress& progress) override { hear("epoch", progress.step); }
    void recorded(const run::MetricsRecord& record) override { hear("recorded", record.step); }
    void checkpoint_written(const std::string& path) override { hear(path, 0); }
    void noted(const std::string& message) override { hear(message, 0); }

   private:
    void hear(const std::string& what, std::uint64_t step) { heard_.push_back(name_ + " " + what + " " + std::to_string(step)); }
    std::string name_;
    std::vector<std::string>& heard_;
  };
  std::vector<std::string> heard;
  Listener a("a", heard);
  Listener b("b", heard);
  run::TrainObservers observers{&a};
  observers.add(b);
  run::TrainObserver& observer = observers;
  observer.progressed({.step = 1});
  observer.epoch_ended({.step = 2});
  observer.recorded({.step = 3});
  observer.checkpoint_written("path");
  observer.noted("note");
  EXPECT_EQ(heard, (std::vector<std::string>{"a progressed 1", "b progressed 1", "a epoch 2", "b epoch 2", "a recorded 3", "b recorded 3",
                                             "a path 0", "b path 0", "a note 0", "b note 0"}));
}

}  // namespace
}  // namespace starling::lab
