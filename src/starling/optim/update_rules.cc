// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/optim/update_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/optim/update_rules.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace starling::optim::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The gradient at i as the rule is to see it. Comparisons, not minimum and maximum: those may lose a NaN.
template <bool kDecay>
struct Prepared {
  const Preparation& preparation;
  const float* HWY_RESTRICT gradient;
  const float* HWY_RESTRICT weights;

  template <class Tag>
  HWY_INLINE hn::Vec<Tag> at(Tag tag, std::size_t i) const {
    const auto limit = hn::Set(tag, preparation.limit);
    auto g = hn::LoadU(tag, gradient + i);
    g = hn::IfThenElse(hn::Gt(g, limit), limit, g);
    g = hn::IfThenElse(hn::Lt(g, hn::Neg(limit)), hn::Neg(limit), g);
    g = hn::Mul(g, hn::Set(tag, preparation.scale));
    if constexpr (kDecay) g = hn::Add(g, hn::Mul(hn::Set(tag, preparation.decay), hn::LoadU(tag, weights + i)));
    return g;
  }
};

// Each rule moves the elements from i on, as many as the tag has lanes.

struct Sgd {
  float lr;

  template <class Tag, class Gradient>
  HWY_INLINE void move(Tag tag, std::size_t i, float* HWY_RESTRICT weights, const Gradient& gradient) const {
    const auto change = hn::Mul(hn::Set(tag, lr), gradient.at(tag, i));
    hn::StoreU(hn::Sub(hn::LoadU(tag, weights + i), change), tag, weights + i);
  }
};

struct Momentum {
  float lr;
  float momentum;
  float* HWY_RESTRICT velocity;

  template <class Tag, class Gradient>
  HWY_INLINE void move(Tag tag, std::size_t i, float* HWY_RESTRICT weights, const Gradient& gradient) const {
    const auto v = hn::Add(hn::Mul(hn::Set(tag, momentum), hn::LoadU(tag, velocity + i)), gradient.at(tag, i));
    hn::StoreU(v, tag, velocity + i);
    hn::StoreU(hn::Sub(hn::LoadU(tag, weights + i), hn::Mul(hn::Set(tag, lr), v)), tag, weights + i);
  }
};

struct Nesterov {
  float lr;
  float momentum;
  float* HWY_RESTRICT velocity;

  template <class Tag, class Gradient>
  HWY_INLINE void move(Tag tag, std::size_t i, float* HWY_RESTRICT weights, const Gradient& gradient) const {
    const auto g = gradient.at(tag, i);
    const auto mu = hn::Set(tag, momentum);
    const auto v = hn::Add(hn::Mul(mu, hn::LoadU(tag, velocity + i)), g);
    hn::StoreU(v, tag, velocity + i);
    const auto change = hn::Mul(hn::Set(tag, lr), hn::Add(g, hn::Mul(mu, v)));
    hn::StoreU(hn::Sub(hn::LoadU(tag, weights + i), change), tag, weights + i);
  }
};

struct Lars {
  float lr;
  float momentum;
  float* HWY_RESTRICT velocity;

  template <class Tag, class Gradient>
  HWY_INLINE void move(Tag tag, std::size_t i, float* HWY_RESTRICT weights, const Gradient& gradient) const {
    const auto change = hn::Mul(hn::Set(tag, lr), gradient.at(tag, i));
    const auto v = hn::Add(hn::Mul(hn::Set(tag, momentum), hn::LoadU(tag, velocity + i)), change);
    hn::StoreU(v, tag, velocity + i);
    hn::StoreU(hn::Sub(hn::LoadU(tag, weights + i), v), tag, weights + i);
  }
};

struct Adagrad {
  float lr;
  float epsilon;
  float* HWY_RESTRICT squares;

  template <class Tag, class Gradient>
  HWY_INLINE void move(Tag tag, std::size_t i, float* HWY_RESTRICT weights, const Gradient& gradient) const {
    const auto g = gradient.at(tag, i);
    const auto s = hn::Add(hn::LoadU(tag, squares + i), hn::Mul(g, g));
    hn::StoreU(s, tag, squares + i);
    const auto direction = hn::Div(g, hn::Add(hn::Sqrt(s), hn::Set(tag, epsilon)));
    hn::StoreU(hn::Sub(hn::LoadU(tag, weights + i), hn::Mul(hn::Set(tag, lr), direction)), tag, weights + i);
  }
};

struct Adam {
  const AdamFactors& factors;
  float* HWY_RESTRICT first;
  float* HWY_RESTRICT second;

  template <class Tag, class Gradient>
  HWY_INLINE void move(Tag tag, std::size_t i, float* HWY_RESTRICT weights, const Gradient& gradient) const {
    const auto g = gradient.at(tag, i);
    const auto m = hn::Add(hn::Mul(hn::Set(tag, factors.beta1), hn::LoadU(tag, first + i)), hn::Mul(hn::Set(tag, factors.rest1), g));
    const auto s =
        hn::Add(hn::Mul(hn::Set(tag, factors.beta2), hn::LoadU(tag, second + i)), hn::Mul(hn::Set(tag, factors.rest2), hn::Mul(g, g)));
    hn::StoreU(m, tag, first + i);
    hn::StoreU(s, tag, second + i);
    const auto deviation = hn::Add(hn::Div(hn::Sqrt(s), hn::Set(tag, factors.deviation)), hn::Set(tag, factors.epsilon));
    const auto change = hn::Mul(hn::Set(tag, factors.rate), hn::Div(m, deviation));
    hn::StoreU(hn::Sub(hn::LoadU(tag, weights + i), change), tag, weights + i);
  }
};

// Full vectors first; what remains goes through the same code one by one.
template <class Rule, class Gradient>
HWY_INLINE void move_all(const Rule& rule, float* HWY_RESTRICT weights, const Gradient& gradient, std::size_t count) {
  const hn::ScalableTag<float> tag;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) rule.move(tag, i, weights, gradient);
  for (; i < count; ++i) rule.move(one, i, weights, gradient);
}

template <class Rule>
HWY_INLINE void run(const Rule& rule, const Preparation& preparation, float* weights, const float* gradient, std::size_t count) {
  if (preparation.decay == 0) {
    move_all(rule, weights, Prepared<false>{preparation, gradient, weights}, count);
  } else {
    move_all(rule, weights, Prepared<true>{preparation, gradient, weights}, count);
  }
}

void sgd(const Preparation& preparation, float lr, float* weights, const float* gradient, std::size_t count) {
  run(Sgd{lr}, preparation, weights, gradient, count);
}

void momentum(const Preparation& preparation, float lr, float factor, float* weights, const float* gradient, float* velocity,
              std::size_t count) {
  run(Momentum{lr, factor, velocity}, preparation, weights, gradient, count);
}

void nesterov(const Preparation& preparation, float lr, float factor, float* weights, const float* gradient, float* velocity,
              std::size_t count) {
  run(Nesterov{lr, factor, velocity}, preparation, weights, gradient, count);
}

void lars(const Preparation& preparation, float lr, float factor, float* weights, const float* gradient, float* velocity,
          std::size_t count) {
  run(Lars{lr, factor, velocity}, preparation, weights, gradient, count);
}

void adagrad(const Preparation& preparation, float lr, float epsilon, float* weights, const float* gradient, float* squares,
             std::size_t count) {
  run(Adagrad{lr, epsilon, squares}, preparation, weights, gradient, count);
}

void adam(const Preparation& preparation, const AdamFactors& factors, float* weights, const float* gradient, float* first, float* second,
          std::size_t count) {
  run(Adam{factors, first, second}, preparation, weights, gradient, count);
}

}  // namespace starling::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::optim {

HWY_EXPORT(sgd);
HWY_EXPORT(momentum);
HWY_EXPORT(nesterov);
HWY_EXPORT(lars);
HWY_EXPORT(adagrad);
HWY_EXPORT(adam);

void update_sgd(const Preparation& preparation, float lr, std::span<float> weights, std::span<const float> gradient) {
  HWY_DYNAMIC_DISPATCH(sgd)(preparation, lr, weights.data(), gradient.data(), gradient.size());
}

void update_momentum(const Preparation& preparation, float lr, float momentum, std::span<float> weights, std::span<const float> gradient,
                     std::span<float> velocity) {
  HWY_DYNAMIC_DISPATCH(momentum)(preparation, lr, momentum, weights.data(), gradient.data(), velocity.data(), gradient.size());
}

void update_nesterov(const Preparation& preparation, float lr, float momentum, std::span<float> weights, std::span<const float> gradient,
                     std::span<float> velocity) {
  HWY_DYNAMIC_DISPATCH(nesterov)(preparation, lr, momentum, weights.data(), gradient.data(), velocity.data(), gradient.size());
}

void update_lars(const Preparation& preparation, float lr, float momentum, std::span<float> weights, std::span<const float> gradient,
                 std::span<float> velocity) {
  HWY_DYNAMIC_DISPATCH(lars)(preparation, lr, momentum, weights.data(), gradient.data(), velocity.data(), gradient.size());
}

void update_adagrad(const Preparation& preparation, float lr, float epsilon, std::span<float> weights, std::span<const float> gradient,
                    std::span<float> squares) {
  HWY_DYNAMIC_DISPATCH(adagrad)(preparation, lr, epsilon, weights.data(), gradient.data(), squares.data(), gradient.size());
}

void update_adam(const Preparation& preparation, const AdamFactors& factors, std::span<float> weights, std::span<const float> gradient,
                 std::span<float> first, std::span<float> second) {
  HWY_DYNAMIC_DISPATCH(adam)
  (preparation, factors, weights.data(), gradient.data(), first.data(), second.data(), gradient.size());
}

double norm(std::span<const float> values, float limit) {
  // Eight sums side by side, so that they neither wait for one another nor depend on the vectors of the machine.
  std::array<double, 8> sums{};
  const auto square = [limit](float value) {
    const float cut = value > limit ? limit : value < -limit ? -limit : value;
    return static_cast<double>(cut) * static_cast<double>(cut);
  };
  std::size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += square(values[i + j]);
  }
  for (std::size_t j = 0; i + j < values.size(); ++j) sums[j] += square(values[i + j]);
  return std::sqrt(((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])));
}

double whole_power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1U, base *= base) {
    if ((exponent & 1U) != 0) result *= base;
  }
  return result;
}

}  // namespace starling::optim
#endif
