// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/gathering.h"

#include <vector>

namespace starling::strategy {

Status wait_for_all(const Context& context) {
  constexpr fabric::Tag kHere = 30;
  constexpr fabric::Tag kGoOn = 31;
  fabric::Endpoint& endpoint = context.endpoint;
  if (endpoint.rank() != 0) {
    STARLING_TRY(endpoint.send(0, kHere, {}));
    Result<fabric::Message> message = context.patience.receive(endpoint, fabric::from(0, kGoOn));
    return message ? Status{} : Status(message.failure());
  }
  std::vector<fabric::Rank> here;
  for (fabric::Rank worker = 1; worker < context.roles.workers; ++worker) {
    Result<fabric::Message> message = context.patience.receive(endpoint, fabric::from(worker, kHere));
    if (message) here.push_back(worker);
    if (!message && message.failure().kind != FailureKind::peer_lost) return message.failure();
  }
  for (const fabric::Rank worker : here) {
    Status sent = endpoint.send(worker, kGoOn, {});
    if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
  }
  return {};
}

}  // namespace starling::strategy
