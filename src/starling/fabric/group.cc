// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "starling/base/error.h"

namespace starling::fabric {

Group Group::world(int size) {
  std::vector<Rank> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return Group(std::move(members));
}

Group::Group(std::vector<Rank> members, std::uint16_t context) : members_(std::move(members)), context_(context) {
  std::vector<Rank> sorted = members_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) throw UserError(fmt::format("a group has rank {} twice, but each rank may be in it once", *twice));
  if (!sorted.empty() && sorted.front() < 0) {
    throw UserError(fmt::format("a group has rank {}, but ranks start at 0", sorted.front()));
  }
  contiguous_ = sorted == members_ && (sorted.empty() || sorted.back() - sorted.front() + 1 == size());
}

std::optional<int> Group::index_of(Rank rank) const {
  if (contiguous_) {
    if (members_.empty() || rank < members_.front() || rank > members_.back()) return std::nullopt;
    return rank - members_.front();
  }
  const auto found = std::find(members_.begin(), members_.end(), rank);
  if (found == members_.end()) return std::nullopt;
  return static_cast<int>(found - members_.begin());
}

}  // namespace starling::fabric
