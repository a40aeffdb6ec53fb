// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What travels between ranks, and how a receiver says what it wants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "starling/fabric/payload.h"

namespace starling::fabric {

using Rank = int;
inline constexpr Rank kAnyRank = -1;

// Tags below kFirstReservedTag are free for everybody; those from it on belong to the collectives and other built-in protocols.
using Tag = std::uint32_t;
inline constexpr Tag kFirstReservedTag = 0x8000'0000;

struct Message {
  Rank source = 0;
  Tag tag = 0;
  Payload payload{};
  std::uint64_t sequence = 0;  // How many messages the sender had sent to this receiver before; a duplicate has the same number.
};

// Which messages a receiver takes. Among those that match, the one that arrived first.
struct Filter {
  Rank source = kAnyRank;
  std::optional<Tag> tag{};  // Without a tag: any that is not reserved.

  // When set, a wait also ends, with FailureKind::peer_lost, as soon as the caller's endpoint has seen more departures than this
  // (see Endpoint::departures). It is how a server that waits for anybody hears that a worker is gone.
  std::optional<std::size_t> departures_seen{};

  bool matches(Rank message_source, Tag message_tag) const {
    if (source != kAnyRank && source != message_source) return false;
    return tag ? *tag == message_tag : message_tag < kFirstReservedTag;
  }

  // "a message with tag 7 from rank 3", for error messages.
  std::string description() const;
};

// A source that a fabric of `ranks` ranks does not have is a broken invariant.
void check_source(const Filter& filter, int ranks);

inline Filter from(Rank source) { return {.source = source}; }
inline Filter from(Rank source, Tag tag) { return {.source = source, .tag = tag}; }
inline Filter tagged(Tag tag) { return {.tag = tag}; }
inline Filter anything() { return {}; }

}  // namespace starling::fabric
