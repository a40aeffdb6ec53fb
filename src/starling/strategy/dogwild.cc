// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Dogwild! (Noel and Osindero, "Dogwild! — distributed Hogwild for CPU & GPU", NIPS workshop on distributed machine learning 2014): the
// distributed form of Hogwild!. Gradients, not weights, stream to all other workers, which apply them as they come. Nobody waits for
// anybody: a message that finds no room is lost, and one that the network loses is not sent again; both are counted.
#include "starling/strategy/gradient_streams.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

class Dogwild final : public GradientStreams {
 public:
  explicit Dogwild(const Context& context)
      : GradientStreams(context, {.peers = others(context.roles, context.endpoint.rank()),
                                  .offers = true,
                                  .weight = stream_weight(context.settings, static_cast<std::size_t>(context.roles.workers - 1))}) {}
};

}  // namespace

Description describe_dogwild() {
  Description description;
  description.name = "dogwild";
  description.summary = "gradients stream to all other workers, which apply them as they come; what is lost is lost, and counted";
  description.rule =
      "worker j   before a batch: an optimizer step with weight x g for every gradient g that has arrived; after it one with its own g, "
      "which "
      "it offers to all others\n"
      "An offer that finds no room at the receiver, or that the network loses, is not made again. The optimizer is the run's, on every "
      "worker, "
      "or with optimizer=sgd plain SGD";
  description.traffic = "per step: P - 1 messages of n floats from every worker";
  description.paper =
      "Noel and Osindero 2014. Deviation: what one worker sends another is applied in the order in which it was sent; only between "
      "different senders is there no order. What others send counts for less than in the paper (weight=1), which with momentum is too "
      "much.";
  description.options = {stream_optimiser_option("run"), stream_weight_option(), result_option()};
  description.sends = Sends::gradients;
  description.places = Places::addressed;
  description.survives_lost_worker = true;
  description.own_models = true;
  description.opening = stream_opening;
  description.make = [](const Context& context) { return std::make_unique<Dogwild>(context); };
  return description;
}

}  // namespace starling::strategy
