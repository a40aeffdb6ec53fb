// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The strategies by the names users type, each with what there is to know about it before it runs.
//
//   Registry registry = Registry::built_in();
//   registry.add(describe_my_strategy());                        // One of your own.
//   const Description& description = registry.find("easgd");     // Throws UserError with the nearest name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/strategy/settings.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

// What travels, and so what a codec may do to it.
enum class Sends {
  nothing,
  gradients,
  deltas,     // Differences of weights.
  weights,    // A codec that leaves parts out would leave parts of the model out: refused.
  additions,  // To memory that is shared, where nobody could decode them: a codec is refused.
};

// Where every update is to be applied.
enum class Places {
  workers,    // At every replica.
  servers,    // At every server; each has a part of the weights.
  centre,     // At worker 0: in a window there, by those who make them, or by a coordinator.
  addressed,  // At the workers that its maker names (ledger::Account::produced_for).
};

struct Description {
  std::string name{};
  std::string summary{};  // One line, for `starling strategies`.
  std::string rule{};     // The formula, with who does what.
  std::string traffic{};  // Messages and bytes per step; n floats, P workers, S servers.
  std::string paper{};    // Where it comes from, and where this deviates.
  std::vector<Option> options{};

  Sends sends = Sends::gradients;
  Places places = Places::workers;
  bool needs_servers = false;
  bool needs_generator = false;  // One more rank, which deals the batches out.
  bool one_worker_only = false;
  // Every worker ends with a model of its own, and the option `result` says which is the run's (result_option()).
  bool own_models = false;
  // A worker's replica is a part of the model (subnets.h), which part_layout says.
  bool trains_parts = false;
  // All workers do the same steps in step with each other, so that a run may be stopped after any step without changing its course.
  bool lockstep = false;
  // With some settings, groups of workers are in step inside, but not with each other: they too can only be stopped all after the same
  // step, but that may change their course.
  std::function<bool(const Settings&)> lockstep_when{};
  // Where workers are in step: those that a worker is in step with, itself included, the same at all of them. Without it, all workers.
  std::function<std::vector<fabric::Rank>(const Settings&, const Roles&, fabric::Rank)> step_group{};
  // A run may go on from a checkpoint with more or fewer workers: what it needs is the model and what all workers, or servers, have alike.
  bool resumes_with_other_workers = false;
  // A worker that is lost does not end the run.
  bool survives_lost_worker = false;

  std::function<std::unique_ptr<Strategy>(Context)> make{};
  // What only this strategy can check, such as groups that must divide the workers. Throws UserError. May be empty.
  std::function<void(const Settings&, const Roles&)> check{};
  // Where trains_parts: the layout of the part that a worker has of a model of this layout; the same all the time. Throws UserError, with
  // the reason, if such a model has no such parts.
  std::function<params::Layout(const Settings&, const Roles&, const params::Layout&, int worker)> part_layout{};
  // A line that tells people at the start what to know of this model under these settings. May be empty.
  std::function<std::string(const Settings&, const Roles&, const params::Layout&)> opening{};
};

// The option `result` of strategies with own_models: average, best (by the validation samples) or rank0.
Option result_option();

bool in_lockstep(const Description& description, const Settings& settings);

// The ranks at which every update is to be applied.
std::vector<int> place_ranks(Places places, const Roles& roles);

class Registry {
 public:
  static Registry built_in();

  // Replaces one of the same name.
  void add(Description description);
  const Description& find(const std::string& name) const;
  const std::vector<Description>& all() const { return descriptions_; }  // In the order of the spectrum.

 private:
  std::vector<Description> descriptions_;
};

// Throws UserError, with the reason, if this strategy cannot be used with these workers, servers or this codec.
void check_use(const Description& description, const Settings& settings, const Roles& roles, const std::string& codec,
               const optim::OptimiserOptions& optimiser);

}  // namespace starling::strategy
