// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Waiting for somebody who may rightly take long, such as a server for its workers: until something comes, or somebody departs, or nobody
// in the whole run has got on for the time-out.
//
//   Patience patience{.slice = options.timeout, .progress = [&] { return board.steps(); }};
//   Result<Message> message = patience.receive(endpoint, anything());
#pragma once

#include <cstdint>
#include <functional>

#include "starling/fabric/endpoint.h"

namespace starling::fabric {

struct Patience {
  Duration slice = std::chrono::seconds(30);
  // Grows as long as any rank gets on. Without it, ranks that are there are taken to get on.
  std::function<std::uint64_t()> progress{};

  // As endpoint.receive(). If the filter asks to hear of departures, it does.
  Result<Message> receive(Endpoint& endpoint, const Filter& filter) const;
};

// The same for a wait that is made of shorter ones, with something else done in between.
//
//   LongWait wait(patience, endpoint);
//   while (!try_for_a_moment()) {
//     if (!wait.goes_on()) return wait.given_up(failure);
//   }
class LongWait {
 public:
  // Both must outlive it.
  LongWait(const Patience& patience, const Endpoint& endpoint);

  // False when nobody has got on for the time-out.
  bool goes_on();

  // The failure of the last attempt, as that of the whole wait.
  Failure given_up(Failure last) const;

 private:
  std::uint64_t progress() const { return patience_.progress ? patience_.progress() : 0; }

  const Patience& patience_;
  const Endpoint& endpoint_;
  Time begin_;
  Time looked_;
  std::uint64_t seen_;
};

}  // namespace starling::fabric
