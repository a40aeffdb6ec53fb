// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Local steps, and an average of all replicas every so often: local SGD and FedAvg are this with different weights in the average.
#pragma once

#include <vector>

#include "starling/strategy/coded_sum.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

class Averaging : public Strategy {
 public:
  Averaging(Context context, std::uint64_t period);

  Status start(std::span<float> weights, std::span<const float> model) override;
  Status exchange(const Step& step) override;
  Status finish(std::span<float> weights, std::span<float> model) override;
  void list_state(params::StateList& state) override;

 protected:
  // The weight of a worker in the average that ends this round (0, 1, …); those of all workers add up to 1. Computed by every worker alike.
  virtual double share_of(int worker, std::uint64_t round) const = 0;

  // Whether a batch that is smaller than the others' counts for less, so that an average after every step is the step of all samples.
  virtual bool weighs_batches() const { return false; }
  // At the end of every round.
  virtual void round_ended() {}

  RunOptimiser& optimiser() { return optimiser_; }
  std::uint64_t round_of(std::uint64_t step) const { return (step - 1) / period_; }

 private:
  Status average(std::uint64_t round, double epoch, std::span<float> weights);

  std::uint64_t period_;
  fabric::Group workers_;
  CodedSum sum_;
  RunOptimiser optimiser_;
  std::vector<float> base_;  // Where the round began, where differences travel instead of weights.
  std::uint64_t steps_ = 0;
};

}  // namespace starling::strategy
