// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A strategy of your own, from outside the project: signSGD with majority vote (Bernstein et al. 2018). A worker sends only the signs of
// its gradient; each weight moves by the learning rate in the direction that most workers want. With `beta` it votes with a mean of its
// past gradients instead (their Signum).
#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

#include "starling/run/replica_set.h"
#include "starling/run/trainer.h"
#include "starling/strategy/coded_sum.h"

using namespace starling;

class Signed final : public strategy::Strategy {
 public:
  explicit Signed(strategy::Context its_context)
      : Strategy(std::move(its_context)),
        beta_(static_cast<float>(context().settings.number("beta"))),
        votes_(context()),
        mean_(context().layout.parameter_count()) {}

  Status start(std::span<float> /*weights*/, std::span<const float> /*model*/) override { return {}; }  // They are the same everywhere.

  Status exchange(const strategy::Step& step) override {
    const params::UpdateId id = context().account.produced();
    endpoint().pass("push");
    for (std::size_t i = 0; i < mean_.size(); ++i) {
      mean_[i] = beta_ * mean_[i] + (1 - beta_) * step.gradient[i];
      step.gradient[i] = sign(mean_[i]);
    }
    STARLING_TRY(votes_.add_up(step.gradient, step.epoch));
    for (std::size_t i = 0; i < mean_.size(); ++i) step.weights[i] -= static_cast<float>(step.lr) * sign(step.gradient[i]);
    // Every worker has moved by the votes of all: the books want to know.
    for (int worker = 0; worker < context().roles.workers; ++worker)
      context().account.applied_fresh({.origin = worker, .number = id.number});
    return {};
  }

  // Nothing is under way between two steps, and all replicas are equal.
  Status finish(std::span<float> weights, std::span<float> model) override { return peek(weights, model); }

  void list_state(params::StateList& state) override {
    state.add("mean", mean_);
    votes_.list_state(state);
  }

 private:
  static float sign(float value) { return value == 0 ? 0 : std::copysign(1.0F, value); }

  float beta_;
  strategy::CodedSum votes_;
  std::vector<float> mean_;
};

strategy::Description describe_signed() {
  strategy::Description description;
  description.name = "signed";
  description.summary = "signSGD with majority vote";
  description.options = {strategy::Option::number("beta", 0, 0, 0.999, "weight of the past in the mean that votes")};
  description.lockstep = true;  // Workers wait for each other in every step.
  description.make = [](strategy::Context context) { return std::make_unique<Signed>(std::move(context)); };
  return description;
}

int main() {
  strategy::Registry registry = strategy::Registry::built_in();
  registry.add(describe_signed());
  run::RunConfig config;
  config.model = "softmax";
  config.data = "blobs:classes=3,samples=600,spread=0.2";
  config.strategy = "signed";
  config.options = {{"beta", "0.9"}};
  config.workers = 4;
  config.schedule.lr = 0.02;
  config.epochs = 10;
  config.schedule.batch = 8;
  const data::Dataset dataset = data::load_dataset(config.data, config.data_folder);
  for (const char* fabric : {"threads", "sim"}) {
    config.fabric.name = fabric;
    const run::ReplicaSet replicas(config, dataset, registry);
    run::Trainer trainer(config, replicas.pointers(), dataset, {.registry = &registry});
    trainer.run();
    const run::TrainResult& result = trainer.result();
    std::cout << fabric << ": accuracy " << *result.state.test_accuracy << ", " << result.balance.produced << " updates, the books "
              << (result.balance.balanced ? "balance" : "do not balance") << ", weights " << result.weights_sha256.substr(0, 8) << "\n";
  }
}
