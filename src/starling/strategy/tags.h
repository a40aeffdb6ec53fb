// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the messages of strategies have in common.
#pragma once

#include <cstdint>

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

// A stamp carries one number: the learning rate, negative in the first stage of two.
inline double with_stage(const Step& step) { return step.first_stage ? -step.lr : step.lr; }

}  // namespace starling::strategy
