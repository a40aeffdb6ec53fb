// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A barrier of all ranks that are still there. Unlike collective::barrier it goes on without those that are lost, and one rank, the lowest
// that is there, does something for all while the others wait.
//
//   Meeting meeting(endpoint);                           // One object per rank, for all meetings of a run.
//   STARLING_TRY(meeting.hold([&] { write_checkpoint(); }));
//
// All ranks hold the same meetings in the same order. If the rank that does the work is lost meanwhile, another does it again.
//
// Ranks that do not see each other's memory bring what the work needs, and take home what came of it (Parcels). Nobody can stand in for a
// rank whose memory is gone with it; then all must be there (Attendance::all), and a rank that is gone is a failure, peer_lost, everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "starling/fabric/endpoint.h"
#include "starling/fabric/patience.h"

namespace starling::collective {

// No rank before this one is still there, as far as this one has heard.
bool is_first_alive(const fabric::Endpoint& endpoint);

enum class Attendance {
  those_there,
  all,
};

// What is carried to the rank that does the work and back. Each may be empty; then nothing is carried that way.
struct Parcels {
  std::function<fabric::Payload()> bring{};                             // At every other rank, once.
  std::function<void(fabric::Rank, const fabric::Payload&)> receive{};  // Where the work is done, and before it, for every other rank.
  std::function<fabric::Payload()> give{};                              // Where the work was done; all get the same.
  std::function<void(const fabric::Payload&)> take{};                   // At every other rank.
};

class Meeting {
 public:
  Meeting(fabric::Endpoint& endpoint, fabric::Patience patience, Attendance attendance = Attendance::those_there);

  // `work` runs on one rank, when all are there. What it throws is thrown there; likewise the parcels'. Parcels need Attendance::all.
  Status hold(const std::function<void()>& work, const Parcels& parcels = {});

 private:
  Status lead(const std::function<void()>& work, const Parcels& parcels);
  Status gather(const Parcels& parcels);
  Status follow(fabric::Rank leader, const Parcels& parcels);
  bool anybody_missing() const;
  Status check_attendance() const;

  fabric::Endpoint& endpoint_;
  fabric::Patience patience_;
  Attendance attendance_;
  std::uint64_t number_ = 0;
  std::vector<std::uint64_t> arrived_;  // The last meeting every rank has come to.
};

}  // namespace starling::collective
