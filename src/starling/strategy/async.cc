// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The plain asynchronous parameter server (Dean et al., "Large scale distributed deep networks", NIPS 2012, with n_push = n_fetch = 1):
// every worker pulls, computes and pushes at its own pace, and a server applies updates as they arrive. The optimiser, with its one
// momentum buffer for all workers, is on the server. One worker is sequential training, bit for bit.
#include "starling/strategy/gradient_server.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
Description describe_async() {
  Description description;
  description.name = "async";
  description.summary = "plain asynchronous parameter server: updates are applied as they arrive";
  description.rule =
      "worker   g = gradient at w; push g to the servers; w = what they reply with\n"
      "server   on g from any worker: w = optimizer step with g (with momentum: v = mu v + g; w = w - lr v); reply with w";
  description.traffic = "per step and worker: S messages up with n floats in all (fewer bytes with a codec), S down with n floats";
  description.paper = "Dean et al. 2012 (Downpour with n_push = n_fetch = 1); the optimizer is on the server and is shared by all workers.";
  description.options = {staleness_lr_option()};
  description.sends = Sends::gradients;
  description.places = Places::servers;
  description.needs_servers = true;
  description.survives_lost_worker = true;
  description.resumes_with_other_workers = true;
  description.make = [](Context context) { return std::make_unique<GradientServer>(std::move(context)); };
  return description;
}

}  // namespace starling::strategy
