// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A barrier of all ranks that are still there. Unlike collective::barrier it goes on without those that are lost, and one rank, the lowest
// that is there, does something for all while the others wait.
//
//   Meeting meeting(endpoint);                           // One object per rank, for all meetings of a run.
//   STARLING_TRY(meeting.hold([&] { write_checkpoint(); }));
//
// All ranks hold the same meetings in the same order. If the rank that does the work is lost meanwhile, another does it again.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "starling/fabric/endpoint.h"
#include "starling/fabric/patience.h"

namespace starling::collective {

// No rank before this one is still there, as far as this one has heard.
bool is_first_alive(const fabric::Endpoint& endpoint);

class Meeting {
 public:
  Meeting(fabric::Endpoint& endpoint, fabric::Patience patience);

  // `work` runs on one rank, when all are there. What it throws is thrown there.
  Status hold(const std::function<void()>& work);

 private:
  Status lead(const std::function<void()>& work);
  Status follow(fabric::Rank leader);

  fabric::Endpoint& endpoint_;
  fabric::Patience patience_;
  std::uint64_t number_ = 0;
  std::vector<std::uint64_t> arrived_;  // The last meeting every rank has come to.
};

}  // namespace starling::collective
