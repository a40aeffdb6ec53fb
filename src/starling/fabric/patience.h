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

}  // namespace starling::fabric
