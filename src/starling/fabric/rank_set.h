// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Which ranks a rule of a configuration applies to: "all", "0", "1-7", "0,2-3".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "starling/fabric/message.h"

namespace starling::fabric {

class RankSet {
 public:
  RankSet() = default;  // All ranks.
  RankSet(std::initializer_list<Rank> ranks);

  // Throws UserError naming `what`.
  static RankSet parse(std::string_view text, std::string_view what);

  // The form that parse() reads.
  std::string text() const;

  bool contains(Rank rank) const;

  // Throws UserError if the set names a rank that a fabric of `ranks` ranks does not have.
  void validate(int ranks, std::string_view what) const;

 private:
  std::vector<std::pair<Rank, Rank>> ranges_;  // First and last, both included; none means all ranks.
};

}  // namespace starling::fabric
