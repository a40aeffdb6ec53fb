// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the messages of strategies have in common: their tags, and knowing those that a fault of the network gives twice.
#pragma once

#include <cstdint>
#include <vector>

#include "starling/strategy/strategy.h"

namespace starling::strategy {

// A strategy numbers its kinds of messages from 1 to kTags - 1. On the wire they differ from stretch to stretch, so that a message which a
// fault has doubled is not taken for one of the next.
inline constexpr fabric::Tag kTags = 8;

inline fabric::Tag tag_in(const Context& context, fabric::Tag tag) {
  constexpr std::uint64_t kStretches = fabric::kFirstReservedTag / kTags;
  return static_cast<fabric::Tag>(context.stretch % kStretches) * kTags + tag;
}

// Whether a message is of the stretch that goes on now, and not left over from an earlier one.
inline bool is_of_this_stretch(const Context& context, fabric::Tag tag) { return tag / kTags == tag_in(context, 0) / kTags; }

// A fault of the network may give a message twice; a duplicate has the number of the first.
class NewMessages {
 public:
  explicit NewMessages(int ranks) : next_(static_cast<std::size_t>(ranks)) {}

  // Takes note of it. False for one that came before.
  bool is_new(const fabric::Message& message) {
    std::uint64_t& next = next_[static_cast<std::size_t>(message.source)];
    if (message.sequence < next) return false;
    next = message.sequence + 1;
    return true;
  }

 private:
  std::vector<std::uint64_t> next_;  // By rank: the number of the next message from it that has not come before.
};

// A stamp carries one number: the learning rate, negative in the first stage of two.
inline double with_stage(const Step& step) { return step.first_stage ? -step.lr : step.lr; }

}  // namespace starling::strategy
