// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/result.h"

#include <fmt/format.h>

namespace starling {

const char* to_string(FailureKind kind) {
  switch (kind) {
    case FailureKind::timeout:
      return "time-out";
    case FailureKind::peer_lost:
      return "peer lost";
    case FailureKind::deadlock:
      return "deadlock";
    case FailureKind::crashed:
      return "crashed";
    case FailureKind::mismatch:
      return "mismatch";
  }
  return "unknown failure";
}

std::string Failure::message() const {
  std::string text = fmt::format("{}: rank {} waited {} for {}", to_string(kind), rank, format_duration(waited), awaited);
  if (!detail.empty()) text += fmt::format(": {}", detail);
  return text;
}

}  // namespace starling
