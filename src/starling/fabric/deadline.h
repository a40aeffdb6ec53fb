// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How long a call may block. Every blocking call of an endpoint takes one: nothing waits for ever.
#pragma once

#include "starling/base/time.h"

namespace starling::fabric {

class Deadline {
 public:
  // The fabric's time-out. Running into it means that the run has gone wrong. When every rank waits like this and nothing is
  // under way, the simulator reports a deadlock at once instead of letting the time pass.
  static constexpr Deadline standard() { return Deadline(Kind::standard, Duration::zero()); }

  // A timer of the caller's own: that the time passes is an expected outcome.
  static constexpr Deadline after(Duration duration) { return Deadline(Kind::after, duration); }
  static constexpr Deadline at(Time time) { return Deadline(Kind::at, time); }

  constexpr bool is_standard() const { return kind_ == Kind::standard; }

  // The moment meant, for a call made at `now` on a fabric whose time-out is `timeout`.
  constexpr Time resolve(Time now, Duration timeout) const {
    if (kind_ == Kind::at) return value_;
    return later(now, kind_ == Kind::standard ? timeout : value_);
  }

 private:
  enum class Kind { standard, after, at };
  constexpr Deadline(Kind kind, Duration value) : kind_(kind), value_(value) {}

  Kind kind_;
  Duration value_;
};

}  // namespace starling::fabric
