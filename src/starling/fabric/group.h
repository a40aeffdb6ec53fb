// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// An ordered set of ranks that act together. Collectives run over a group, and the order of its members is the order in which
// they add up.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "starling/fabric/message.h"

namespace starling::fabric {

// Immutable. Two groups are the same when members and context are; all members must construct it alike.
class Group {
 public:
  // All ranks of a fabric of `size` ranks, in order.
  static Group world(int size);

  // `members` are distinct and not negative. The context keeps the messages of groups with common members apart: after a
  // collective has failed, form a group with a new context, so that nothing left over from the failed one is taken for a new
  // message. Throws UserError for a rank given twice.
  explicit Group(std::vector<Rank> members, std::uint16_t context = 0);

  int size() const { return static_cast<int>(members_.size()); }
  std::uint16_t context() const { return context_; }
  const std::vector<Rank>& members() const { return members_; }
  Rank operator[](int index) const { return members_[static_cast<std::size_t>(index)]; }

  // The position of a rank in the group, if it is a member.
  std::optional<int> index_of(Rank rank) const;

  bool operator==(const Group&) const = default;

 private:
  std::vector<Rank> members_;
  std::uint16_t context_;
  bool contiguous_;  // members_[i] == members_[0] + i, so that index_of needs no search.
};

}  // namespace starling::fabric
