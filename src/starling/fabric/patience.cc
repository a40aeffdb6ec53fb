// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/patience.h"

#include <fmt/format.h>

#include <utility>

namespace starling::fabric {

Result<Message> Patience::receive(Endpoint& endpoint, const Filter& filter) const {
  LongWait wait(*this, endpoint);
  for (;;) {
    Result<Message> message = endpoint.receive(filter, Deadline::after(slice));
    if (message.ok() || message.failure().kind != FailureKind::timeout) return message;
    if (!wait.goes_on()) return wait.given_up(message.failure());
  }
}

LongWait::LongWait(const Patience& patience, const Endpoint& endpoint)
    : patience_(patience), endpoint_(endpoint), begin_(endpoint.now()), looked_(begin_), seen_(progress()) {}

bool LongWait::goes_on() {
  const Time now = endpoint_.now();
  if (now - looked_ < patience_.slice || !patience_.progress) return true;
  looked_ = now;
  const std::uint64_t before = std::exchange(seen_, progress());
  return seen_ != before;
}

Failure LongWait::given_up(Failure last) const {
  last.waited = endpoint_.now() - begin_;
  last.detail = fmt::format("nobody has got on for the time-out of {} (fabric.timeout)", format_duration(patience_.slice));
  return last;
}

}  // namespace starling::fabric
