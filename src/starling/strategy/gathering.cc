// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/gathering.h"

#include <span>
#include <vector>

#include "starling/strategy/messages.h"

namespace starling::strategy {

namespace {

constexpr fabric::Tag kHere = 6;
constexpr fabric::Tag kGoOn = 7;

// The message of this gathering; those of earlier ones are passed over.
Status await(const Context& context, fabric::Rank from, fabric::Tag tag, std::uint64_t number) {
  for (;;) {
    Result<fabric::Message> message = context.patience.receive(context.endpoint, fabric::from(from, tag_in(context, tag)));
    if (!message) return message.failure();
    if (message->payload.as<std::uint64_t>()[0] == number) return {};
  }
}

Status tell(const Context& context, fabric::Rank to, fabric::Tag tag, std::uint64_t number) {
  return context.endpoint.send(to, tag_in(context, tag), fabric::Payload::copy_of(std::span<const std::uint64_t>(&number, 1)));
}

}  // namespace

Status wait_for_all(const Context& context, std::uint64_t number) {
  if (context.endpoint.rank() != 0) {
    STARLING_TRY(tell(context, 0, kHere, number));
    return await(context, 0, kGoOn, number);
  }
  std::vector<fabric::Rank> here;
  for (fabric::Rank worker = 1; worker < context.roles.workers; ++worker) {
    Status arrived = await(context, worker, kHere, number);
    if (arrived) here.push_back(worker);
    if (!arrived && arrived.failure().kind != FailureKind::peer_lost) return arrived;
  }
  for (const fabric::Rank worker : here) {
    Status sent = tell(context, worker, kGoOn, number);
    if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
  }
  return {};
}

}  // namespace starling::strategy
