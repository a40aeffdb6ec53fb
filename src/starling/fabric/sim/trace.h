// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The events of a simulated run as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing show: ranks as rows, on them
// what the rank does (compute, sleep, wait, send, receive), messages as arrows, faults as marks. Written as the run goes on.
#pragma once

#include <iosfwd>
#include <string_view>

#include "starling/base/time.h"
#include "starling/fabric/message.h"

namespace starling::fabric::sim {

class Trace {
 public:
  // Writes to `out`, which must outlive the trace; without it every call does nothing.
  Trace(std::ostream* out, int ranks);
  ~Trace();  // Closes the JSON array.
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool on() const { return out_ != nullptr; }

  // A stretch of one rank's time; `detail` may be empty. Names and details are plain text.
  void slice(Rank rank, std::string_view name, Time begin, Time end, std::string_view detail);

  // A moment on one rank.
  void mark(Rank rank, std::string_view name, Time time, std::string_view detail);

  // The two ends of a message, paired by sender, receiver and sequence number. A message that is lost has only the first.
  void sent(const Message& message, Rank to, Time time);
  void received(const Message& message, Rank to, Time time);

 private:
  void write(std::string_view event);
  void message_end(char phase, const Message& message, Rank to, Time time);

  std::ostream* out_;
  bool first_ = true;
};

}  // namespace starling::fabric::sim
