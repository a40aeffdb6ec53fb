// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "bench/fma_peak.h"

#include "bench/measure.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace starling::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Ten sums that do not wait for each other: more than the units of any processor can have under way.
double operations_per_second() {
  constexpr int kRounds = 1'000'000;
  const hn::CappedTag<float, 16> tag;
  const auto factor = hn::Set(tag, 0.999f);
  const auto term = hn::Set(tag, 0.001f);
  // Each starts elsewhere, or the compiler would see that all are the same.
  auto a = hn::Set(tag, 0.1f), b = hn::Set(tag, 0.2f), c = hn::Set(tag, 0.3f), d = hn::Set(tag, 0.4f), e = hn::Set(tag, 0.5f);
  auto f = hn::Set(tag, 0.6f), g = hn::Set(tag, 0.7f), h = hn::Set(tag, 0.8f), i = hn::Set(tag, 0.9f), j = hn::Set(tag, 1.1f);
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < kRounds; ++round) {
    a = hn::MulAdd(a, factor, term);
    b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term);
    d = hn::MulAdd(d, factor, term);
    e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term);
    g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term);
    i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term);
  }
  const double seconds = seconds_since(begin);
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, d)), hn::Add(hn::Add(e, f), hn::Add(hn::Add(g, h), hn::Add(i, j))));
  const bool used = hn::GetLane(sum) > 0;  // So that the loop has to be run.
  return used ? 2.0 * 10 * static_cast<double>(hn::Lanes(tag)) * kRounds / seconds : 0;
}

}  // namespace starling::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::bench {

HWY_EXPORT(operations_per_second);

double fma_peak() {
  double best = 0;
  for (int i = 0; i < 20; ++i) best = std::max(best, HWY_DYNAMIC_DISPATCH(operations_per_second)());
  return best;
}

}  // namespace starling::bench
#endif
