// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/optim/optimiser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "starling/base/aligned_floats.h"
#include "starling/base/error.h"
#include "starling/optim/update_rules.h"

namespace starling::optim {
namespace {

// What all rules share: options, state vectors, the count of steps, and clipping.
class Rule : public Optimiser {
 public:
  Rule(OptimiserOptions options, const params::Layout& layout, std::vector<std::string> state_names)
      : options_(std::move(options)),
        weight_count_(layout.size()),
        parameter_count_(layout.parameter_count()),
        state_names_(std::move(state_names)),
        state_(state_names_.size()) {
    for (AlignedFloats& values : state_) values.grow(parameter_count_);
  }

  void step(std::span<float> weights, std::span<const float> gradient, double lr) final {
    STARLING_CHECK(gradient.size() == parameter_count_,
                   fmt::format("a gradient of {} floats for a layout with {} parameters", gradient.size(), parameter_count_));
    STARLING_CHECK(weights.size() == parameter_count_ || weights.size() == weight_count_,
                   fmt::format("{} weights for a layout of {} floats", weights.size(), weight_count_));
    STARLING_CHECK(lr >= 0 && std::isfinite(lr), fmt::format("the learning rate is {}", lr));
    ++steps_;
    move(prepare(gradient), weights.first(parameter_count_), gradient, lr);
  }

  std::vector<State> state() final {
    std::vector<State> result;
    for (std::size_t i = 0; i < state_.size(); ++i) result.push_back({.name = state_names_[i], .values = state_vector(i)});
    return result;
  }

  std::uint64_t steps() const final { return steps_; }
  void set_steps(std::uint64_t steps) final { steps_ = steps; }
  const OptimiserOptions& options() const final { return options_; }

 protected:
  virtual void move(const Preparation& preparation, std::span<float> weights, std::span<const float> gradient, double lr) = 0;

  std::span<float> state_vector(std::size_t i) { return state_[i].span().first(parameter_count_); }
  float momentum() const { return static_cast<float>(options_.momentum); }
  double epsilon_or(double standard) const { return options_.epsilon == 0 ? standard : options_.epsilon; }

 private:
  Preparation prepare(std::span<const float> gradient) const {
    Preparation result{.decay = static_cast<float>(options_.weight_decay)};
    if (options_.clip_value > 0) result.limit = static_cast<float>(options_.clip_value);
    if (options_.clip_norm > 0) {
      const double scale = options_.clip_norm / (norm(gradient, result.limit) + 1e-6);
      if (scale < 1) result.scale = static_cast<float>(scale);
    }
    return result;
  }

  OptimiserOptions options_;
  std::size_t weight_count_;
  std::size_t parameter_count_;
  std::vector<std::string> state_names_;
  std::vector<AlignedFloats> state_;
  std::uint64_t steps_ = 0;
};

class Sgd final : public Rule {
 public:
  Sgd(const OptimiserOptions& options, const params::Layout& layout) : Rule(options, layout, {}) {}

 private:
  void move(const Preparation& preparation, std::span<float> weights, std::span<const float> gradient, double lr) override {
    update_sgd(preparation, static_cast<float>(lr), weights, gradient);
  }
};

class Momentum final : public Rule {
 public:
  Momentum(const OptimiserOptions& options, const params::Layout& layout) : Rule(options, layout, {"momentum"}) {}

 private:
  void move(const Preparation& preparation, std::span<float> weights, std::span<const float> gradient, double lr) override {
    update_momentum(preparation, static_cast<float>(lr), momentum(), weights, gradient, state_vector(0));
  }
};

class Nesterov final : public Rule {
 public:
  Nesterov(const OptimiserOptions& options, const params::Layout& layout) : Rule(options, layout, {"momentum"}) {}

 private:
  void move(const Preparation& preparation, std::span<float> weights, std::span<const float> gradient, double lr) override {
    update_nesterov(preparation, static_cast<float>(lr), momentum(), weights, gradient, state_vector(0));
  }
};

class Adagrad final : public Rule {
 public:
  Adagrad(const OptimiserOptions& options, const params::Layout& layout) : Rule(options, layout, {"squares"}) {}

 private:
  void move(const Preparation& preparation, std::span<float> weights, std::span<const float> gradient, double lr) override {
    update_adagrad(preparation, static_cast<float>(lr), static_cast<float>(epsilon_or(1e-10)), weights, gradient, state_vector(0));
  }
};

class Adam final : public Rule {
 public:
  Adam(const OptimiserOptions& options, const params::Layout& layout) : Rule(options, layout, {"first_moment", "second_moment"}) {}

 private:
  void move(const Preparation& preparation, std::span<float> weights, std::span<const float> gradient, double lr) override {
    const double beta1 = options().beta1;
    const double beta2 = options().beta2;
    const AdamFactors factors{.beta1 = static_cast<float>(beta1),
                              .rest1 = static_cast<float>(1 - beta1),
                              .beta2 = static_cast<float>(beta2),
                              .rest2 = static_cast<float>(1 - beta2),
                              .rate = static_cast<float>(lr / (1 - whole_power(beta1, steps()))),
                              .deviation = static_cast<float>(std::sqrt(1 - whole_power(beta2, steps()))),
                              .epsilon = static_cast<float>(epsilon_or(1e-8))};
    update_adam(preparation, factors, weights, gradient, state_vector(0), state_vector(1));
  }
};

class Lars final : public Rule {
 public:
  Lars(const OptimiserOptions& options, const params::Layout& layout) : Rule(options, layout, {"momentum"}) {
    for (const params::Slice& slice : layout.slices()) {
      if (slice.kind == params::SliceKind::parameter) parts_.push_back({slice.offset, slice.size, slice.shape.size() > 1});
    }
  }

 private:
  struct Part {
    std::size_t offset;
    std::size_t size;
    bool adapted;
  };

  void move(const Preparation& preparation, std::span<float> weights, std::span<const float> gradient, double lr) override {
    for (const Part& part : parts_) {
      const std::span<float> w = weights.subspan(part.offset, part.size);
      const std::span<const float> g = gradient.subspan(part.offset, part.size);
      const double rate = part.adapted ? local_rate(preparation, w, g) : 1;
      update_lars(preparation, static_cast<float>(lr * rate), momentum(), w, g, state_vector(0).subspan(part.offset, part.size));
    }
  }

  double local_rate(const Preparation& preparation, std::span<const float> weights, std::span<const float> gradient) const {
    const double weight_norm = norm(weights);
    const double gradient_norm = preparation.scale * norm(gradient, preparation.limit);
    if (weight_norm == 0 || gradient_norm == 0) return 1;
    return options().trust * weight_norm / (gradient_norm + options().weight_decay * weight_norm + options().epsilon);
  }

  std::vector<Part> parts_;
};

void check(bool valid, const char* option, double value, const char* range) {
  if (!valid || !std::isfinite(value)) throw UserError(fmt::format("{} is {}, but it must be {}", option, value, range));
}

void check_options(const OptimiserOptions& options) {
  const auto factor = [](double value) { return value >= 0 && value < 1; };
  check(factor(options.momentum), "momentum", options.momentum, "at least 0 and below 1");
  check(factor(options.beta1), "beta1", options.beta1, "at least 0 and below 1");
  check(factor(options.beta2), "beta2", options.beta2, "at least 0 and below 1");
  check(options.epsilon >= 0, "epsilon", options.epsilon, "0 (the usual value of the rule) or positive");
  check(options.trust > 0, "trust", options.trust, "positive");
  check(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 (none) or positive");
  check(options.clip_norm >= 0, "clip_norm", options.clip_norm, "0 (no limit) or positive");
  check(options.clip_value >= 0, "clip_value", options.clip_value, "0 (no limit) or positive");
}

}  // namespace

std::vector<std::string> optimiser_names() { return {"sgd", "momentum", "nesterov", "adagrad", "adam", "lars"}; }

std::unique_ptr<Optimiser> make_optimiser(const OptimiserOptions& options, const params::Layout& layout) {
  check_options(options);
  if (options.name == "sgd") return std::make_unique<Sgd>(options, layout);
  if (options.name == "momentum") return std::make_unique<Momentum>(options, layout);
  if (options.name == "nesterov") return std::make_unique<Nesterov>(options, layout);
  if (options.name == "adagrad") return std::make_unique<Adagrad>(options, layout);
  if (options.name == "adam") return std::make_unique<Adam>(options, layout);
  if (options.name == "lars") return std::make_unique<Lars>(options, layout);
  throw UserError(fmt::format("there is no optimizer '{}'; it is one of {}.{}", options.name, fmt::join(optimiser_names(), ", "),
                              nearest_name_hint(options.name, optimiser_names())));
}

}  // namespace starling::optim
