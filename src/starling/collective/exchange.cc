// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/collective/exchange.h"

#include <fmt/format.h>

#include <utility>

#include "starling/base/error.h"

namespace starling::collective {
namespace {

int position(const fabric::Endpoint& endpoint, const fabric::Group& group) {
  const std::optional<int> index = group.index_of(endpoint.rank());
  STARLING_CHECK(index.has_value(), fmt::format("rank {} takes part in a collective of a group it is not in", endpoint.rank()));
  for (const fabric::Rank member : group.members()) {
    STARLING_CHECK(member < endpoint.size(), fmt::format("a group has rank {}, but there are only {} ranks", member, endpoint.size()));
  }
  return *index;
}

}  // namespace

fabric::Deadline fix_deadline(const fabric::Endpoint& endpoint, fabric::Deadline deadline) {
  if (deadline.is_standard()) return deadline;
  return fabric::Deadline::at(deadline.resolve(endpoint.now(), Duration::zero()));
}

Exchange::Exchange(fabric::Endpoint& endpoint, const fabric::Group& group, Operation operation, fabric::Deadline deadline)
    : endpoint_(endpoint),
      group_(group),
      tag_(fabric::kFirstReservedTag | static_cast<fabric::Tag>(group.context()) << 8 | static_cast<fabric::Tag>(operation)),
      deadline_(fix_deadline(endpoint, deadline)),
      index_(position(endpoint, group)) {}

Status Exchange::send(int to, fabric::Payload payload) { return endpoint_.send(group_[to], tag_, std::move(payload), deadline_); }

Result<fabric::Payload> Exchange::receive(int from, std::size_t size) {
  const fabric::Filter filter = fabric::from(group_[from], tag_);
  Result<fabric::Message> message = endpoint_.receive(filter, deadline_);
  if (!message) return message.failure();
  const std::size_t size_bytes = message->payload.size_bytes();
  if (size_bytes != size * sizeof(float)) {
    return Failure{FailureKind::mismatch, endpoint_.rank(),
                   group_[from],          fmt::format("{} floats from rank {}", size, group_[from]),
                   Duration::zero(),      fmt::format("{} bytes came instead: the members give vectors of different length", size_bytes)};
  }
  return std::move(message->payload);
}

}  // namespace starling::collective
