// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Strategies whose workers run the optimiser and push differences of weights, which a server adds to its own: ssp, downpour and agn.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "starling/strategy/parameter_server.h"

namespace starling::strategy {

class DeltaServer : public ParameterServer {
 public:
  explicit DeltaServer(Context context);

 protected:
  // Takes a local step, and adds to the difference that is to be pushed. The first of them gives it a name.
  void step_locally(const Step& step);
  std::uint64_t steps_since_push() const { return steps_; }
  // Pushes the difference, times `factor`, and begins a new one; with a pull in the same round trip, or without.
  Status push_delta(const Step& step, double factor, bool with_pull);
  Status flush(std::span<const float> weights) override;
  // What the difference is multiplied by when it has to be pushed early.
  virtual double flush_factor() const { return 1; }

  RunOptimiser& optimiser() { return *optimiser_; }

 private:
  void apply(const Update& update, std::span<float> weights) override;
  void list_worker_state(params::StateList& state) override;

  std::optional<RunOptimiser> optimiser_;      // On workers.
  std::shared_ptr<std::vector<float>> delta_;  // Shared with messages on their way.
  params::UpdateId id_{};
  std::uint64_t steps_ = 0;  // In delta_.
  Step last_{};              // For a flush: its rate and stage.
};

}  // namespace starling::strategy
