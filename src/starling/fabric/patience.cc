// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/patience.h"

#include <fmt/format.h>

namespace starling::fabric {

Result<Message> Patience::receive(Endpoint& endpoint, const Filter& filter) const {
  const Time begin = endpoint.now();
  std::uint64_t before = progress ? progress() : 0;
  for (;;) {
    Result<Message> message = endpoint.receive(filter, Deadline::after(slice));
    if (message.ok() || message.failure().kind != FailureKind::timeout) return message;
    const std::uint64_t now = progress ? progress() : before + 1;
    if (now == before) {
      Failure failure = message.failure();
      failure.waited = endpoint.now() - begin;
      failure.detail = fmt::format("nobody has got on for the time-out of {} (fabric.timeout)", format_duration(slice));
      return failure;
    }
    before = now;
  }
}

}  // namespace starling::fabric
