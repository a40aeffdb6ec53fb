// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Time as Starling counts it: whole nanoseconds, since the start of the run. The same type serves the real clock and the
// simulator's virtual one, so that code which asks an endpoint for the time cannot tell which of them answers.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace starling {

using Duration = std::chrono::nanoseconds;
using Time = std::chrono::nanoseconds;  // Since the start of the run.

inline constexpr Time kEndOfTime = Time::max();

inline double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// The moment `duration` after `time`; never beyond kEndOfTime. Precondition: duration >= 0.
constexpr Time later(Time time, Duration duration) { return duration > kEndOfTime - time ? kEndOfTime : time + duration; }

// Rounded to the nearest nanosecond; more than 292 years is kEndOfTime. Not a number is a broken invariant.
Duration from_seconds(double seconds);

// "250 ns", "1.5 ms", "30 s": at most four significant digits and the unit that suits.
std::string format_duration(Duration duration);

// Reads "30ms", "1.5 s", "250us", "10ns", "2min" or "0". Throws UserError for anything else, negative values included; `what`
// names the option in the message.
Duration parse_duration(std::string_view text, std::string_view what);

}  // namespace starling
