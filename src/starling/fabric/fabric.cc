// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "starling/base/error.h"

namespace starling::fabric {

void FabricOptions::validate() const {
  if (ranks < 1) throw UserError(fmt::format("the number of ranks is {}, but it must be at least 1", ranks));
  if (timeout <= Duration::zero()) throw UserError("the time-out must be above 0: every wait needs an end");
  if (queue_messages < 1) throw UserError("queue_messages is 0, but a queue must hold at least 1 message");
  for (const DelayRule& delay : delays) delay.ranks.validate(ranks, "a delay at '" + delay.point + "'");
  for (const SpeedRule& rule : speeds) {
    rule.ranks.validate(ranks, "a speed");
    if (!(rule.factor > 0 && std::isfinite(rule.factor))) {
      throw UserError(fmt::format("a speed has factor {}, but a factor must be above 0 and finite", rule.factor));
    }
  }
}

double FabricOptions::speed(Rank rank) const {
  double factor = 1;
  for (const SpeedRule& rule : speeds) {
    if (rule.ranks.contains(rank)) factor *= rule.factor;
  }
  return factor;
}

void check_not_faster(const FabricOptions& options, int rank, const char* what) {
  if (options.speed(rank) <= 1) return;
  throw UserError(
      fmt::format("rank {} has speed {}, but {} cannot run faster than they do: give factors up to 1, or use the simulator (--fabric sim)",
                  rank, options.speed(rank), what));
}

bool RunReport::ok() const {
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [](const RankOutcome& outcome) { return outcome.kind == RankOutcome::Kind::finished; });
}

std::string RunReport::summary() const {
  std::string text = deadlock;
  for (const RankOutcome& outcome : outcomes) {
    if (outcome.kind == RankOutcome::Kind::finished) continue;
    const char* kind = outcome.kind == RankOutcome::Kind::crashed ? "crashed" : "failed";
    text += fmt::format("rank {} {}: {}\n", outcome.rank, kind, outcome.message);
  }
  return text;
}

void RunReport::rethrow() const {
  for (const RankOutcome& outcome : outcomes) {
    if (outcome.error) std::rethrow_exception(outcome.error);
  }
}

std::vector<Rank> Fabric::local_ranks() const {
  std::vector<Rank> ranks(static_cast<std::size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

RankOutcome run_body(const Body& body, Endpoint& endpoint) {
  RankOutcome outcome{.rank = endpoint.rank(), .kind = RankOutcome::Kind::failed};
  try {
    const Status status = body(endpoint);
    if (status) {
      outcome.kind = RankOutcome::Kind::finished;
    } else {
      outcome.message = status.failure().message();
    }
  } catch (const std::exception& error) {
    outcome.message = error.what();
    outcome.error = std::current_exception();
  } catch (...) {
    outcome.message = "threw something that is not a std::exception";
    outcome.error = std::current_exception();
  }
  return outcome;
}

}  // namespace starling::fabric
