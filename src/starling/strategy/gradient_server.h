// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Strategies whose workers push every gradient and whose servers have the run's optimiser: async and dc-asgd.
#pragma once

#include <optional>

#include "starling/strategy/parameter_server.h"

namespace starling::strategy {

class GradientServer : public ParameterServer {
 public:
  explicit GradientServer(Context context);

  Status exchange(const Step& step) override;

 protected:
  // Servers: an optimiser step with the update, or with what a strategy makes of it.
  void apply(const Update& update, std::span<float> weights) override { step(update, update.values, weights); }
  void step(const Update& update, std::span<const float> gradient, std::span<float> weights);
  void list_server_state(params::StateList& state) override;

 private:
  std::optional<RunOptimiser> optimiser_;  // On servers.
};

}  // namespace starling::strategy
