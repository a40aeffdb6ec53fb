// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/threads/threads_fabric.h"

#include <fmt/format.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "starling/base/error.h"
#include "starling/fabric/threads/threads_endpoint.h"
#include "starling/fabric/threads/world.h"

namespace starling::fabric {

ThreadsFabric::ThreadsFabric(FabricOptions options) : options_(std::move(options)) {
  options_.validate();
  for (Rank rank = 0; rank < options_.ranks; ++rank) check_not_faster(options_, rank, "threads");
}

RunReport ThreadsFabric::run(const Body& body) {
  threads::World world(options_);
  RunReport report;
  report.outcomes.resize(static_cast<std::size_t>(options_.ranks));
  std::vector<std::thread> ranks;
  ranks.reserve(report.outcomes.size());
  const auto live = [&](Rank rank) {
    threads::ThreadsEndpoint endpoint(world, rank);
    RankOutcome& outcome = report.outcomes[static_cast<std::size_t>(rank)];
    outcome = run_body(body, endpoint);
    world.announce(rank, outcome.kind == RankOutcome::Kind::finished ? PeerState::finished : PeerState::lost);
  };
  std::string refused;
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    if (refused.empty()) {
      try {
        ranks.emplace_back(live, rank);
        continue;
      } catch (const std::system_error& error) {
        refused = error.what();
      }
    }
    // The ranks that do run must not wait for those that the system has no thread for.
    report.outcomes[static_cast<std::size_t>(rank)] = {rank, RankOutcome::Kind::failed, "there is no thread for it: " + refused};
    world.announce(rank, PeerState::lost);
  }
  for (std::thread& thread : ranks) thread.join();
  return report;
}

}  // namespace starling::fabric
