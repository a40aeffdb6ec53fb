// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Neighbour gradients (Viviani et al., the asynchronous training library FAST): partial communication. A worker sends its gradients to the
// neighbours of a topology and no further; what it receives it applies, and does not pass on. So replicas are no copies of one model: each
// has seen the gradients of its own neighbourhood only.
#include "starling/strategy/gradient_streams.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/topology.h"

namespace starling::strategy {
namespace {

class Neighbours final : public GradientStreams {
 public:
  explicit Neighbours(const Context& context)
      : GradientStreams(context, {.peers = peers(context), .weight = stream_weight(context.settings, peers(context).size())}) {}

 private:
  static std::vector<fabric::Rank> peers(const Context& context) {
    const Topology topology = Topology::make(topology_of(context.settings, context.seed), context.roles.workers);
    const std::span<const int> neighbours = topology.neighbours(context.endpoint.rank());
    return {neighbours.begin(), neighbours.end()};
  }
};

}  // namespace

Description describe_neighbours() {
  Description description;
  description.name = "neighbours";
  description.summary = "gradients go to the neighbours of a topology, and no further";
  description.rule =
      "worker j   before a batch: an optimizer step with weight x g for every gradient g of a neighbour that has arrived; after it one "
      "with "
      "its own g, which it sends to its neighbours\n"
      "The optimizer is the run's, on every worker, or with optimizer=sgd plain SGD";
  description.traffic = "per step: k messages of n floats from every worker, k its neighbours";
  description.paper = "Viviani et al., FAST: the fourth kind of its spectrum. Deviation: hypercubes and complete graphs besides.";
  description.options = topology_options("ring");
  description.options.push_back(stream_weight_option());
  description.options.push_back(stream_optimiser_option("run"));
  description.options.push_back(result_option());
  description.sends = Sends::gradients;
  description.places = Places::addressed;
  description.survives_lost_worker = true;
  description.own_models = true;
  description.opening = stream_opening;
  description.make = [](const Context& context) { return std::make_unique<Neighbours>(context); };
  description.check = [](const Settings& settings, const Roles& roles) { (void)Topology::make(topology_of(settings, 1), roles.workers); };
  return description;
}

}  // namespace starling::strategy
