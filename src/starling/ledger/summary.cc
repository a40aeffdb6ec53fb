// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "starling/base/units.h"
#include "starling/ledger/ledger.h"

namespace starling::ledger {
namespace {

constexpr std::size_t kMostLines = 16;  // More workers than that are summed up in one line.

std::string updates_line(const Balance& balance) {
  std::uint64_t dropped = 0;
  std::string reasons;
  for (const auto& [reason, times] : balance.dropped) {
    dropped += times;
    reasons += fmt::format("{}{} {}", reasons.empty() ? " (" : ", ", times, reason);
  }
  return fmt::format("updates {} produced, {} applied, {} dropped{}{}\n", balance.produced, balance.applied, dropped, reasons,
                     reasons.empty() ? "" : ")");
}

std::string histogram_line(const char* name, const Histogram& histogram) {
  return fmt::format("{} mean {:.2f}  p50 {}  p95 {}  max {}\n", name, histogram.mean(), histogram.quantile(0.5), histogram.quantile(0.95),
                     histogram.max());
}

std::string time_text(Duration time) { return time == Duration::zero() ? "0 s" : format_duration(time); }

// "3 s", or "2.9 s to 3.1 s" where the workers differ in what is shown.
std::string spread(const std::vector<TimeUse>& time, Duration TimeUse::*part) {
  const auto less = [part](const TimeUse& left, const TimeUse& right) { return left.*part < right.*part; };
  const auto [least, most] = std::minmax_element(time.begin(), time.end(), less);
  const std::string from = time_text((*least).*part);
  const std::string to = time_text((*most).*part);
  return from == to ? from : fmt::format("{} to {}", from, to);
}

std::string workers_lines(const Balance& balance) {
  if (balance.time.size() > kMostLines) {
    const auto [least, most] = std::minmax_element(balance.steps.begin(), balance.steps.end());
    return fmt::format("{} workers: {} to {} steps, compute {}, waiting {}, communication {}\n", balance.time.size(), *least, *most,
                       spread(balance.time, &TimeUse::compute), spread(balance.time, &TimeUse::waiting),
                       spread(balance.time, &TimeUse::communication));
  }
  std::string text;
  for (std::size_t rank = 0; rank < balance.time.size(); ++rank) {
    const TimeUse& time = balance.time[rank];
    text += fmt::format("worker {}: {} steps, compute {}, waiting {}, communication {}\n", rank, balance.steps[rank],
                        time_text(time.compute), time_text(time.waiting), time_text(time.communication));
  }
  return text;
}

}  // namespace

std::string to_text(const Balance& balance) {
  std::string text = updates_line(balance);
  text += histogram_line("staleness (versions)", balance.version_staleness);
  text += histogram_line("staleness (gradient sets)", balance.set_staleness);
  if (balance.skew.max() > 0) text += histogram_line("skew between shards", balance.skew);
  text += fmt::format("sent {}, idle {:.1f} %\n", format_bytes(static_cast<double>(balance.bytes_sent)), 100 * balance.idle_fraction);
  text += workers_lines(balance);
  if (balance.straggler) {
    text += fmt::format("straggler: worker {}, whose own compute takes {:.2f} times as long per step as that of the others\n",
                        balance.straggler->rank, balance.straggler->times);
  }
  if (!balance.balanced) text += "the books do not balance:\n";
  for (const std::string& error : balance.errors) text += fmt::format("  {}\n", error);
  return text;
}

}  // namespace starling::ledger
