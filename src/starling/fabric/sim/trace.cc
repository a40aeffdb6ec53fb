// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/trace.h"

#include <fmt/format.h>

#include <ostream>
#include <string>

namespace starling::fabric::sim {
namespace {

// The format counts in microseconds; three decimals keep the nanoseconds exact.
std::string microseconds(Duration time) { return fmt::format("{}.{:03}", time.count() / 1000, time.count() % 1000); }

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      result += c;
    }
  }
  return result;
}

std::string arguments(std::string_view detail) {
  return detail.empty() ? std::string() : fmt::format(R"(,"args":{{"detail":"{}"}})", escaped(detail));
}

}  // namespace

Trace::Trace(std::ostream* out, int ranks) : out_(out) {
  if (!on()) return;
  *out_ << '[';
  write(R"({"ph":"M","pid":0,"name":"process_name","args":{"name":"starling, virtual time"}})");
  for (Rank rank = 0; rank < ranks; ++rank) {
    write(fmt::format(R"({{"ph":"M","pid":0,"tid":{0},"name":"thread_name","args":{{"name":"rank {0}"}}}})", rank));
    write(fmt::format(R"({{"ph":"M","pid":0,"tid":{0},"name":"thread_sort_index","args":{{"sort_index":{0}}}}})", rank));
  }
}

Trace::~Trace() {
  if (on()) *out_ << "\n]\n";
}

void Trace::slice(Rank rank, std::string_view name, Time begin, Time end, std::string_view detail) {
  if (!on()) return;
  write(fmt::format(R"({{"ph":"X","pid":0,"tid":{},"ts":{},"dur":{},"name":"{}"{}}})", rank, microseconds(begin), microseconds(end - begin),
                    escaped(name), arguments(detail)));
}

void Trace::mark(Rank rank, std::string_view name, Time time, std::string_view detail) {
  if (!on()) return;
  write(fmt::format(R"({{"ph":"i","s":"t","pid":0,"tid":{},"ts":{},"name":"{}"{}}})", rank, microseconds(time), escaped(name),
                    arguments(detail)));
}

void Trace::sent(const Message& message, Rank to, Time time) {
  if (on()) message_end('s', message, to, time);
}

void Trace::received(const Message& message, Rank to, Time time) {
  if (on()) message_end('f', message, to, time);
}

// An arrow hangs on a slice, so each end of a message is one, of no length.
void Trace::message_end(char phase, const Message& message, Rank to, Time time) {
  const bool is_start = phase == 's';
  const Rank row = is_start ? message.source : to;
  const std::string name = is_start ? fmt::format("send to {}", to) : fmt::format("receive from {}", message.source);
  const std::string at = microseconds(time);
  write(fmt::format(R"({{"ph":"X","pid":0,"tid":{},"ts":{},"dur":0,"name":"{}","args":{{"tag":{},"bytes":{}}}}})", row, at, name,
                    message.tag, message.payload.total_bytes()));
  write(fmt::format(R"({{"ph":"{}","id":"{}>{}#{}","pid":0,"tid":{},"ts":{},"cat":"message","name":"message"{}}})", phase, message.source,
                    to, message.sequence, row, at, is_start ? "" : R"(,"bp":"e")"));
}

void Trace::write(std::string_view event) {
  *out_ << (first_ ? "\n" : ",\n") << event;
  first_ = false;
}

}  // namespace starling::fabric::sim
