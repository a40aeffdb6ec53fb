// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/threads/threads_fabric.h"

#include <thread>
#include <utility>

#include "starling/fabric/threads/threads_endpoint.h"
#include "starling/fabric/threads/world.h"

namespace starling::fabric {

ThreadsFabric::ThreadsFabric(FabricOptions options) : options_(std::move(options)) { options_.validate(); }

RunReport ThreadsFabric::run(const Body& body) {
  threads::World world(options_);
  RunReport report;
  report.outcomes.resize(static_cast<std::size_t>(options_.ranks));
  std::vector<std::thread> ranks;
  ranks.reserve(report.outcomes.size());
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      threads::ThreadsEndpoint endpoint(world, rank);
      RankOutcome& outcome = report.outcomes[static_cast<std::size_t>(rank)];
      outcome = run_body(body, endpoint);
      world.announce(rank, outcome.kind == RankOutcome::Kind::finished ? PeerState::finished : PeerState::lost);
    });
  }
  for (std::thread& thread : ranks) thread.join();
  return report;
}

}  // namespace starling::fabric
