// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/options.h"

#include <fmt/format.h>

#include <cmath>

#include "starling/base/error.h"

namespace starling::fabric {
namespace {

void check_interval(const Interval& interval, std::string_view what) {
  if (interval.until <= interval.from) {
    throw UserError(fmt::format("{} lasts from {} until {}, but it must end after it begins", what, format_duration(interval.from),
                                format_duration(interval.until)));
  }
}

void check_factor(double factor, std::string_view what) {
  if (!(factor > 0 && std::isfinite(factor))) {
    throw UserError(fmt::format("{} has factor {}, but a factor must be above 0 and finite", what, factor));
  }
}

void check_link(Duration latency, double bytes_per_second) {
  if (latency < Duration::zero()) throw UserError("a link's latency is negative");
  if (!(bytes_per_second > 0)) {
    throw UserError(
        fmt::format("a link's bandwidth is {} bytes per second, but it must be above 0; leave it out for no limit", bytes_per_second));
  }
}

void check_faults(const std::vector<MessageFault>& faults, int ranks, std::string_view what) {
  for (const MessageFault& fault : faults) {
    fault.from.validate(ranks, what);
    fault.to.validate(ranks, what);
    if (!(fault.probability >= 0 && fault.probability <= 1)) {
      throw UserError(fmt::format("{} has probability {}, but a probability is between 0 and 1", what, fault.probability));
    }
  }
}

void check_crash(const CrashRule& crash, int ranks) {
  RankSet({crash.rank}).validate(ranks, "a crash");
  if (crash.time.has_value() == !crash.point.empty()) {
    throw UserError(fmt::format("the crash of rank {} needs either a time or a point, and not both", crash.rank));
  }
  if (crash.count < 1) throw UserError(fmt::format("the crash of rank {} has count {}, but counts start at 1", crash.rank, crash.count));
}

}  // namespace

void SimOptions::validate() const {
  FabricOptions::validate();
  check_link(network.link.latency, network.link.bytes_per_second);
  for (const LinkRule& rule : network.rules) {
    rule.from.validate(ranks, "a link");
    rule.to.validate(ranks, "a link");
    check_link(rule.latency.value_or(network.link.latency), rule.bytes_per_second.value_or(network.link.bytes_per_second));
  }
  for (const CrashRule& crash : faults.crashes) check_crash(crash, ranks);
  check_faults(faults.drops, ranks, "a message drop");
  check_faults(faults.duplicates, ranks, "a message duplication");
  check_faults(faults.spikes, ranks, "a delay spike");
  for (const PartitionRule& partition : faults.partitions) {
    partition.ranks.validate(ranks, "a partition");
    check_interval(partition.interval, "a partition");
  }
  for (const SlowRule& rule : faults.slow) {
    rule.ranks.validate(ranks, "a slow rank");
    check_factor(rule.times, "a slow rank");
    check_interval(rule.interval, "a slow rank");
  }
  if (poll_cost <= Duration::zero()) throw UserError("poll_cost must be above 0: a rank that polls would stop the clock");
  if (pool_threads < 0) throw UserError(fmt::format("pool_threads is {}, but it is 0 (one per core) or more", pool_threads));
  if (stack_bytes < (std::size_t{64} << 10))
    throw UserError(fmt::format("stack_bytes is {}, but a rank needs at least 65536", stack_bytes));
}

}  // namespace starling::fabric
