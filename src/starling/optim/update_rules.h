// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the update rules: one pass over memory each, vectorised with the instructions of the machine it runs on. Every
// element is computed on its own and nothing is fused, so the result is the same bit for bit whatever the vector width.
//
// All spans of one call have the same length (the caller's to keep) and do not overlap. Nothing here allocates.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace starling::optim {

// What becomes of a gradient before a rule sees it: cut to ±limit, times scale, plus decay × weight; in this order.
struct Preparation {
  float limit = std::numeric_limits<float>::infinity();
  float scale = 1;
  float decay = 0;
};

// w -= lr g
void update_sgd(const Preparation& preparation, float lr, std::span<float> weights, std::span<const float> gradient);

// v = momentum v + g;  w -= lr v
void update_momentum(const Preparation& preparation, float lr, float momentum, std::span<float> weights, std::span<const float> gradient,
                     std::span<float> velocity);

// v = momentum v + g;  w -= lr (g + momentum v)
void update_nesterov(const Preparation& preparation, float lr, float momentum, std::span<float> weights, std::span<const float> gradient,
                     std::span<float> velocity);

// v = momentum v + lr g;  w -= v
void update_lars(const Preparation& preparation, float lr, float momentum, std::span<float> weights, std::span<const float> gradient,
                 std::span<float> velocity);

// s += g²;  w -= lr g / (√s + epsilon)
void update_adagrad(const Preparation& preparation, float lr, float epsilon, std::span<float> weights, std::span<const float> gradient,
                    std::span<float> squares);

// m = beta1 m + (1 - beta1) g;  s = beta2 s + (1 - beta2) g²;  w -= rate m / (√s / deviation + epsilon)
struct AdamFactors {
  float beta1 = 0;
  float rest1 = 0;  // 1 - beta1, rounded once.
  float beta2 = 0;
  float rest2 = 0;
  float rate = 0;       // lr / (1 - beta1^t)
  float deviation = 1;  // √(1 - beta2^t)
  float epsilon = 0;
};
void update_adam(const Preparation& preparation, const AdamFactors& factors, std::span<float> weights, std::span<const float> gradient,
                 std::span<float> first, std::span<float> second);

// ℓ2 norm of the values, each cut to ±limit first, in double. The order of the additions is fixed by the length alone.
double norm(std::span<const float> values, float limit = std::numeric_limits<float>::infinity());

// base to the power of a whole number, by squaring: the same bits everywhere, which the C library does not promise.
double whole_power(double base, std::uint64_t exponent);

}  // namespace starling::optim
