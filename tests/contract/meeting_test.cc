// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Meetings, on every fabric; and in the simulator, where ranks can be lost at any moment.
#include "starling/collective/meeting.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "contract/fabrics.h"

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using fabric::Endpoint;
using fabric::Patience;
using fabric::Rank;
using fabric::RankOutcome;
using fabric::RunReport;
using fabric::SimFabric;
using fabric::SimOptions;
using fabric::test_name;

constexpr int kMeetings = 20;

// Numbers that all ranks see, one for each meeting.
class Counts {
 public:
  static Counts open(Endpoint& endpoint, const char* name, Rank home) {
    auto window = endpoint.open_window(name, kMeetings, home);
    STARLING_CHECK(window.ok(), window.failure().message());
    return Counts(*window);
  }
  void count(std::size_t meeting) { EXPECT_TRUE(window_->add(meeting, std::vector<float>{1}).ok()); }
  int operator[](std::size_t meeting) {
    std::vector<float> value(1);
    EXPECT_TRUE(window_->read(meeting, value).ok());
    return static_cast<int>(value[0]);
  }

 private:
  explicit Counts(std::shared_ptr<fabric::Window> window) : window_(std::move(window)) {}
  std::shared_ptr<fabric::Window> window_;
};

class MeetingTest : public fabric::FabricTest {};
INSTANTIATE_ON_ALL_FABRICS(MeetingTest);

TEST_P(MeetingTest, TheWorkIsDoneOnceWhenAllAreThereAndBeforeAnybodyGoesOn) {
  run([&](Endpoint& endpoint) -> Status {
    auto arrived = Counts::open(endpoint, "arrived", 0);
    auto worked = Counts::open(endpoint, "worked", 0);
    Meeting meeting(endpoint, {});
    for (std::size_t i = 0; i < kMeetings; ++i) {
      arrived.count(i);
      STARLING_TRY(meeting.hold([&] {
        EXPECT_EQ(arrived[i], ranks()) << "meeting " << i << " began before all were there";
        EXPECT_EQ(endpoint.rank(), 0) << "the lowest rank works";
        worked.count(i);
      }));
      EXPECT_EQ(worked[i], 1) << "somebody left meeting " << i << " too early";
    }
    return meeting.hold([] {});  // The counts end with rank 0.
  });
}

// Everybody brings its rank and the number of the meeting, and takes the sum of all home.
TEST_P(MeetingTest, ParcelsAreCarriedThereAndBack) {
  run([&](Endpoint& endpoint) -> Status {
    Meeting meeting(endpoint, {}, Attendance::all);
    const auto payload = [](int value) { return fabric::Payload::copy_of(std::span<const int>(&value, 1)); };
    for (int i = 0; i < kMeetings; ++i) {
      int sum = endpoint.rank() + i;
      int got = -1;
      STARLING_TRY(meeting.hold([&] { sum *= 2; }, {.bring = [&] { return payload(endpoint.rank() + i); },
                                                    .receive =
                                                        [&](Rank from, const fabric::Payload& brought) {
                                                          EXPECT_EQ(brought.as<int>()[0], from + i);
                                                          sum += brought.as<int>()[0];
                                                        },
                                                    .give = [&] { return payload(sum); },
                                                    .take = [&](const fabric::Payload& given) { got = given.as<int>()[0]; }}));
      const int all = ranks() * (ranks() - 1) / 2 + ranks() * i;
      EXPECT_EQ(endpoint.rank() == 0 ? sum : got, 2 * all) << "meeting " << i;
    }
    return {};
  });
}

// Where all must be there, one that is gone is a failure for everybody else, whoever it is.
TEST_P(MeetingTest, WithoutSomebodyAMeetingOfAllFails) {
  if (ranks() == 1) return;
  const Rank gone = ranks() - 1;
  run([&](Endpoint& endpoint) -> Status {
    Meeting meeting(endpoint, {}, Attendance::all);
    STARLING_TRY(meeting.hold([] {}));
    if (endpoint.rank() == gone) return {};
    const Status held = meeting.hold([] { ADD_FAILURE() << "somebody is missing"; });
    EXPECT_FALSE(held.ok());
    if (!held) {
      EXPECT_EQ(held.failure().kind, FailureKind::peer_lost);
    }
    return {};
  });
}

// What the work writes needs no lock: everybody else waits. The thread sanitizer looks on.
TEST_P(MeetingTest, OthersSeeWhatTheWorkHasWritten) {
  if (!one_process()) return;
  int shared = 0;
  run([&](Endpoint& endpoint) -> Status {
    Meeting meeting(endpoint, {});
    for (int i = 1; i <= kMeetings; ++i) {
      STARLING_TRY(meeting.hold([&] { shared = i; }));
      EXPECT_EQ(shared, i);
      STARLING_TRY(meeting.hold([] {}));
    }
    return {};
  });
}

TEST_P(MeetingTest, GoesOnWithoutThoseThatAreGone) {
  if (ranks() < 2) return;
  // Rank r holds so many meetings and leaves; rank 0, which works at first, is among the early ones.
  const auto meetings_of = [&](Rank rank) { return rank == ranks() - 1 ? kMeetings : 3 * (rank + 1) % kMeetings; };
  run([&](Endpoint& endpoint) -> Status {
    auto worked = Counts::open(endpoint, "worked", ranks() - 1);
    Meeting meeting(endpoint, {});
    for (int i = 0; i < meetings_of(endpoint.rank()); ++i) {
      STARLING_TRY(meeting.hold([&] { worked.count(static_cast<std::size_t>(i)); }));
    }
    for (std::size_t i = 0; endpoint.rank() == ranks() - 1 && i < kMeetings; ++i) EXPECT_GE(worked[i], 1);
    return {};
  });
}

TEST_P(MeetingTest, WhatTheWorkThrowsIsThrownThereAndTheOthersGoOn) {
  if (ranks() < 2) return;
  const RunReport report = make_fabric(fabric_name(), options())->run([&](Endpoint& endpoint) -> Status {
    Meeting meeting(endpoint, {});
    return meeting.hold([&] {
      if (endpoint.rank() == 0) throw std::runtime_error("the disk is full");
    });
  });
  for (const RankOutcome& outcome : report.outcomes) {
    EXPECT_EQ(outcome.kind, outcome.rank == 0 ? RankOutcome::Kind::failed : RankOutcome::Kind::finished) << outcome.message;
  }
  EXPECT_NE(report.outcomes[0].message.find("the disk is full"), std::string::npos);
}

TEST_P(MeetingTest, WaitsBeyondTheTimeOutAsLongAsSomebodyGetsOn) {
  if (ranks() < 2 || !one_process()) return;
  std::atomic<std::uint64_t> steps{0};
  fabric::FabricOptions short_timeout = options();
  short_timeout.timeout = 400ms;
  run(short_timeout, [&](Endpoint& endpoint) -> Status {
    Meeting meeting(endpoint, {.slice = 400ms, .progress = [&] { return steps.load(); }});
    for (int i = 0; endpoint.rank() == 1 && i < 16; ++i) {  // 800 ms, with a step at least in every slice, also on a busy machine.
      endpoint.sleep(50ms);
      ++steps;
    }
    return meeting.hold([] {});
  });
}

TEST_P(MeetingTest, WhenNobodyGetsOnItEndsWithAFailureThatSaysSo) {
  if (ranks() < 2) return;
  fabric::FabricOptions short_timeout = options();
  short_timeout.timeout = 20ms;
  const RunReport report = make_fabric(fabric_name(), short_timeout)->run([&](Endpoint& endpoint) -> Status {
    Meeting meeting(endpoint, {.slice = 20ms, .progress = [] { return std::uint64_t{5}; }});
    if (endpoint.rank() == 1) endpoint.sleep(300ms);
    return meeting.hold([&] { EXPECT_EQ(endpoint.rank(), 1) << "the work was done without rank 1"; });
  });
  EXPECT_EQ(report.outcomes[0].kind, RankOutcome::Kind::failed);
  EXPECT_NE(report.outcomes[0].message.find("nobody has got on for the time-out of 20 ms"), std::string::npos)
      << report.outcomes[0].message;
}

SimOptions simulated(int ranks) {
  SimOptions options;
  options.ranks = ranks;
  options.network.link.latency = 100us;
  return options;
}

// Every rank holds meetings of 10 ms, with 10 ms of its own before each. Returns who did the work of each, and expects the ranks that were
// not crashed to get through.
std::vector<std::vector<Rank>> hold_meetings(const SimOptions& options, int meetings) {
  std::vector<std::vector<Rank>> workers(static_cast<std::size_t>(meetings));
  const RunReport report = SimFabric(options).run([&](Endpoint& endpoint) -> Status {
    Meeting meeting(endpoint, {});
    for (int i = 0; i < meetings; ++i) {
      endpoint.sleep(10ms);
      STARLING_TRY(meeting.hold([&] {
        workers[static_cast<std::size_t>(i)].push_back(endpoint.rank());
        endpoint.sleep(10ms);
      }));
    }
    return {};
  });
  for (const RankOutcome& outcome : report.outcomes) EXPECT_NE(outcome.kind, RankOutcome::Kind::failed) << outcome.message;
  return workers;
}

TEST(MeetingInSim, IfWhoWorksIsLostMeanwhileTheNextDoesItAgain) {
  SimOptions options = simulated(4);
  options.faults.crashes = {{.rank = 0, .time = 15ms}};  // In the middle of the first work.
  EXPECT_EQ(hold_meetings(options, 3), (std::vector<std::vector<Rank>>{{0, 1}, {1}, {1}}));
}

TEST(MeetingInSim, TwoLeadersOneAfterTheOther) {
  SimOptions options = simulated(4);
  options.faults.crashes = {{.rank = 0, .time = 15ms}, {.rank = 1, .time = 20ms}};
  EXPECT_EQ(hold_meetings(options, 2), (std::vector<std::vector<Rank>>{{0, 1, 2}, {2}}));
}

TEST(MeetingInSim, ALostFollowerIsNotWaitedFor) {
  SimOptions options = simulated(4);
  options.faults.crashes = {{.rank = 2, .time = 5ms}};  // Before it arrives.
  EXPECT_EQ(hold_meetings(options, 3), (std::vector<std::vector<Rank>>{{0}, {0}, {0}}));
  options.faults.crashes = {{.rank = 2, .time = 15ms}};  // While it waits.
  EXPECT_EQ(hold_meetings(options, 3), (std::vector<std::vector<Rank>>{{0}, {0}, {0}}));
}

// Some have heard of the end of the meeting from the leader before it was lost, and come to the next one; others have not.
TEST(MeetingInSim, ALeaderThatIsLostWhileItLetsOthersGo) {
  for (int microseconds = 19'800; microseconds <= 20'600; microseconds += 50) {
    SCOPED_TRACE(testing::Message() << "crash after " << microseconds << " us");
    SimOptions options = simulated(5);
    options.network.link.bytes_per_second = 1e5;  // One release after the other.
    options.faults.crashes = {{.rank = 0, .time = std::chrono::microseconds(microseconds)}};
    const std::vector<std::vector<Rank>> workers = hold_meetings(options, 4);
    for (std::size_t i = 1; i < workers.size(); ++i) EXPECT_EQ(workers[i], std::vector<Rank>{1}) << "meeting " << i;
  }
}

TEST(MeetingInSim, ThoseWhoHearLateOfALossAgreeInTheEnd) {
  SimOptions options = simulated(4);
  options.faults.crashes = {{.rank = 0, .time = 15ms}};
  options.faults.detection = 30ms;
  EXPECT_EQ(hold_meetings(options, 3), (std::vector<std::vector<Rank>>{{0, 1}, {1}, {1}}));
}

// A crash of any rank at any time: the others hold all their meetings, and none is held by nobody.
TEST(MeetingInSim, RandomCrashes) {
  constexpr std::uint64_t kSeed = 41;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  RandomStream random(kSeed, 0, "meetings");
  for (int round = 0; round < 200; ++round) {
    SimOptions options = simulated(2 + static_cast<int>(random.below(6)));
    std::string crashes;
    for (Rank rank = 0; rank + 1 < options.ranks; ++rank) {
      if (random.below(2) == 0) continue;
      const Duration at = std::chrono::microseconds(random.below(90'000));
      options.faults.crashes.push_back({.rank = rank, .time = at});
      crashes += fmt::format(" {} at {}", rank, format_duration(at));
    }
    SCOPED_TRACE(testing::Message() << "round " << round << ", " << options.ranks << " ranks, crashes:" << crashes);
    for (const std::vector<Rank>& workers : hold_meetings(options, 4)) EXPECT_FALSE(workers.empty());
  }
}

}  // namespace
}  // namespace starling::collective
