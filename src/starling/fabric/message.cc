// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/message.h"

#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::fabric {

std::string Filter::description() const {
  const std::string what = !tag                       ? std::string("a message")
                           : *tag < kFirstReservedTag ? fmt::format("a message with tag {}", *tag)
                                                      : fmt::format("a built-in message with tag {:#x}", *tag);
  return source == kAnyRank ? what + " from any rank" : fmt::format("{} from rank {}", what, source);
}

void check_source(const Filter& filter, int ranks) {
  STARLING_CHECK(filter.source >= kAnyRank && filter.source < ranks, fmt::format("waiting for rank {} of {}", filter.source, ranks));
}

}  // namespace starling::fabric
