// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Update rules on flat vectors. An optimiser turns a gradient into a step of the weights; it can stand on a worker or on a server, and
// its state can be saved and restored exactly.
//
//   std::unique_ptr<Optimiser> optimiser = make_optimiser({.name = "momentum", .momentum = 0.9}, layout);
//   optimiser->step(weights, gradient, lr);
//
// The rules, with g the gradient after clipping, plus weight_decay × w (conventions of torch.optim, so that runs compare):
//   sgd        w -= lr g
//   momentum   v = μ v + g;  w -= lr v
//   nesterov   v = μ v + g;  w -= lr (g + μ v)
//   adagrad    s += g²;  w -= lr g / (√s + ε)
//   adam       m = β₁ m + (1 - β₁) g;  s = β₂ s + (1 - β₂) g²;  w -= lr m̂ / (√ŝ + ε), both corrected for their start at 0
//   lars       v = μ v + lr λ g;  w -= v; per slice λ = trust ‖w‖ / (‖g without decay‖ + weight_decay ‖w‖ + ε). Slices of one dimension
//              (biases, batch norm) and those where a norm is 0 have λ = 1; weight decay applies to them as to all others.
//
// Thread-safety: an optimiser belongs to one rank. Equal inputs give equal bits, on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/params/layout.h"

namespace starling::optim {

struct OptimiserOptions {
  std::string name = "sgd";  // sgd, momentum, nesterov, adagrad, adam, lars.
  double momentum = 0.9;     // momentum, nesterov, lars: μ, at least 0 and below 1.
  double beta1 = 0.9;        // adam; at least 0 and below 1.
  double beta2 = 0.999;      // adam; at least 0 and below 1.
  double epsilon = 0;        // adam (0 means 1e-8), adagrad (0 means 1e-10), lars (0 means 0).
  double trust = 0.001;      // lars; positive.
  double weight_decay = 0;   // Added to the gradient as weight_decay × w (lars: also in its local rate).
  double clip_norm = 0;      // Scales the gradient down to this ℓ2 norm if it is longer; 0 for no limit.
  double clip_value = 0;     // Cuts every component to ±this; 0 for no limit. Before clip_norm.

  bool operator==(const OptimiserOptions&) const = default;
};

class Optimiser {
 public:
  Optimiser() = default;
  Optimiser(const Optimiser&) = delete;
  Optimiser& operator=(const Optimiser&) = delete;
  virtual ~Optimiser() = default;

  // Moves the parameters, the first gradient.size() weights, by one step with learning rate lr; buffers after them are left alone. Does not
  // allocate. Both vectors belong to the layout the optimiser was made for, and lr is finite and not negative (checked).
  virtual void step(std::span<float> weights, std::span<const float> gradient, double lr) = 0;

  // The state as named flat vectors of parameter_count floats each ("momentum", "second_moment"), in a fixed order; views into the
  // optimiser, which may be written to restore it. Together with steps() they are the whole state.
  struct State {
    std::string name;
    std::span<float> values;
  };
  virtual std::vector<State> state() = 0;
  virtual std::uint64_t steps() const = 0;
  virtual void set_steps(std::uint64_t steps) = 0;

  virtual const OptimiserOptions& options() const = 0;
};

// Throws UserError for an unknown name (with the nearest one) or an option out of range. Options that a rule does not use are ignored.
std::unique_ptr<Optimiser> make_optimiser(const OptimiserOptions& options, const params::Layout& layout);

std::vector<std::string> optimiser_names();

}  // namespace starling::optim
