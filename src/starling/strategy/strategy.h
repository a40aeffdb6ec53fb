// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A strategy says who talks to whom, when, and how what arrives moves the weights. It is written on an endpoint (and the tensor channel and
// collectives above it), and names no fabric, no framework and no codec; so one source runs on threads, in the simulator and on a cluster.
//
// The life of a strategy object, one per rank:
//
//   worker     start(weights)   { prepare(weights); compute a gradient; exchange(step) }*   finish(weights, model)   { more, finish again
//   }* server     start_serving()  serve()  { serve() again }* generator  as a server
//
// finish() drains: when it has returned everywhere, every update produced so far is applied (or was dropped, and says so in the ledger), no
// message is under way, and `model` is the result so far. A run that writes checkpoints calls it at each of them, and then goes on. serve()
// returns when every worker that is still there has called finish().
//
// Where batches come from. Usually every worker has an order of its own, and no strategy minds. A strategy with a generator
// (Description::needs_generator) deals them out itself: the generator takes them from Context::batches, and its workers ask next_batch().
//
// To add a strategy: one file that defines a class and a description (see registry.h), one line in registry.cc, a page in
// docs/strategies/, and a serial reference in tests/contract/strategy_references.cc. From outside the project: examples/own_strategy.
//
// Thread-safety: an object belongs to its rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/base/result.h"
#include "starling/codec/codec.h"
#include "starling/fabric/endpoint.h"
#include "starling/fabric/patience.h"
#include "starling/ledger/ledger.h"
#include "starling/optim/optimiser.h"
#include "starling/params/layout.h"
#include "starling/params/state.h"
#include "starling/strategy/settings.h"

namespace starling::strategy {

// Which rank is what: workers are the ranks 0, …, workers - 1, servers come after them, then the generator. A strategy with a coordinator
// that trains too has it at worker 0.
struct Roles {
  int workers = 1;
  int servers = 0;
  int generators = 0;  // 1 at most.

  int ranks() const { return workers + servers + generators; }
  bool is_worker(fabric::Rank rank) const { return rank < workers; }
  fabric::Rank server(int index) const { return workers + index; }
  fabric::Rank generator() const { return workers + servers; }
  fabric::Group worker_group() const { return fabric::Group::world(workers); }
};

// A batch that a generator deals to a worker.
struct Assignment {
  // Where the stream stands after it, as data::BatchOrder::Position says.
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
  std::uint64_t number = 0;
  std::vector<std::uint32_t> indices{};  // Of the samples.

  bool operator==(const Assignment&) const = default;
};

// The stream of batches of a run, at its generator.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Nothing when the stream pauses, because the run is to meet, or is over. What was given out is to be computed on all the same.
  virtual std::optional<Assignment> next() = 0;
};

// A function, because GCC 12 sees uninitialised memory in the default of a member that is an aggregate.
inline optim::OptimiserOptions default_optimiser() { return {}; }

// What a strategy object works with; all of it outlives the object.
struct Context {
  fabric::Endpoint& endpoint;
  Roles roles;
  const params::Layout& layout;
  const Settings& settings;
  ledger::Account& account;                                 // Of this rank.
  optim::OptimiserOptions optimiser = default_optimiser();  // The run's.
  bool two_stage = false;                                   // Plain SGD as long as a step says so, then the optimiser.
  std::string codec = "fp32";
  std::vector<std::uint64_t> part_samples{};  // How many samples each worker has.
  std::uint64_t seed = 1;
  std::uint64_t stretch = 0;       // How often the ranks have met: 0 from the start to the first checkpoint, then 1, and so on.
  fabric::Patience patience{};     // For waits that last as long as others compute.
  bool skips_not_finite = false;   // A gradient that is not finite is left out, and the run goes on.
  BatchSource* batches = nullptr;  // At the generator.
};

// One gradient that is ready.
struct Step {
  std::span<float> weights;   // The replica's parameters, on which the gradient was computed; exchange() moves them.
  std::span<float> gradient;  // Of the mean loss over the batch. May be overwritten.
  std::uint64_t number = 1;   // 1, 2, … on this worker.
  double epoch = 0;           // Where the run stands.
  double lr = 0;
  bool first_stage = false;  // Of two_stage.
  std::size_t samples = 0;   // In the batch. May be 0 at the end of an epoch: then the gradient is 0.
  double share = 1;          // samples × workers / samples of all workers in this step, where that is known: 1 unless batches differ.
  bool finite = true;        // False: not to be used (its contents are 0); who is in lockstep takes part all the same.
};

class Strategy {
 public:
  explicit Strategy(Context context) : context_(std::move(context)) {}
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  // Workers: agrees on the first weights (layout.parameter_count() floats; the initial ones, the same on every worker, or after a restore
  // this worker's own) and puts those to compute on into `weights`. `model` is the same as `weights`, or after a restore the result so far.
  // Where replicas are parts of the model (Description::trains_parts), `weights` is of this worker's part, here and everywhere.
  virtual Status start(std::span<float> weights, std::span<const float> model) = 0;

  // Workers, before each step: whether this worker is to compute a gradient for it. If not, the step comes with no samples.
  virtual bool takes_part(std::uint64_t number) {
    (void)number;
    return true;
  }

  // Workers with a generator: the next batch; nothing when the stream pauses, and then this worker finishes.
  virtual Result<std::optional<Assignment>> next_batch();

  // Workers, just before each gradient: the last chance to move the weights it is computed on, as by what has arrived meanwhile.
  virtual Status prepare(std::span<float> weights) {
    (void)weights;
    return {};
  }

  // Workers: a gradient is ready.
  virtual Status exchange(const Step& step) = 0;

  // Workers: drains, and puts the result so far into `model`: the same on every worker, or where Description::own_models this worker's.
  // What still arrives may move the weights.
  virtual Status finish(std::span<float> weights, std::span<float> model) = 0;

  // Workers, at any time between exchanges: the result as far as this rank knows it without anybody waiting, for an evaluation on the side.
  virtual Status peek(std::span<const float> weights, std::span<float> model);

  // Servers.
  virtual Status start_serving();
  virtual Status serve();

  // For checkpoints, between finish() and the next exchange: what this rank has to find again, apart from the replica's weights.
  // Called on a new object before start() to restore.
  virtual void list_state(params::StateList& state) { (void)state; }

 protected:
  fabric::Endpoint& endpoint() const { return context_.endpoint; }
  const Context& context() const { return context_; }
  fabric::Rank rank() const { return context_.endpoint.rank(); }

 private:
  Context context_;
};

}  // namespace starling::strategy
