// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Deep gradient compression (Lin, Han, Mao, Wang, Dally: "Deep gradient compression: reducing the communication bandwidth for distributed
// training", ICLR 2018, section 3 and algorithm 4): top-k of accumulated velocities instead of gradients, so that a component that waits
// gets the momentum it would have had.
//   heavy ball  u = μ u + g;    v += u          Nesterov  u = μ (u + g);  v += u + g
// Send the k components of v that are largest, and set them to zero in v and, by masking, in u. The ratio begins at 0.25 and comes down
// over the first epochs. Deviations: exactly k, of the whole flat vector; clipping is the optimiser's affair, not the codec's.
#include <algorithm>
#include <array>

#include "starling/codec/codecs.h"
#include "starling/codec/largest.h"
#include "starling/codec/sparse.h"
#include "starling/codec/with_residual.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/dgc.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

template <bool kNesterov, class D>
HWY_INLINE void accumulate_at(D tag, float momentum, const float* HWY_RESTRICT update, float* HWY_RESTRICT u, float* HWY_RESTRICT v) {
  const auto g = hn::LoadU(tag, update);
  const auto mu = hn::Set(tag, momentum);
  const auto old = hn::LoadU(tag, u);
  const auto velocity = kNesterov ? hn::Mul(mu, hn::Add(old, g)) : hn::Add(hn::Mul(mu, old), g);
  hn::StoreU(velocity, tag, u);
  hn::StoreU(hn::Add(hn::LoadU(tag, v), kNesterov ? hn::Add(velocity, g) : velocity), tag, v);
}

template <bool kNesterov>
HWY_INLINE void accumulate(float momentum, const float* update, float* u, float* v, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) accumulate_at<kNesterov>(kTag, momentum, update + i, u + i, v + i);
  for (; i < count; ++i) accumulate_at<kNesterov>(kOne, momentum, update + i, u + i, v + i);
}

void accumulate_heavy_ball(float momentum, const float* update, float* u, float* v, std::size_t count) {
  accumulate<false>(momentum, update, u, v, count);
}

void accumulate_nesterov(float momentum, const float* update, float* u, float* v, std::size_t count) {
  accumulate<true>(momentum, update, u, v, count);
}

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::codec {
namespace {

HWY_EXPORT(accumulate_heavy_ball);
HWY_EXPORT(accumulate_nesterov);

constexpr std::array<double, 5> kWarmup{0.25, 0.063, 0.015, 0.004, 0.001};

// v is the residual.
class Dgc final : public WithResidual {
 public:
  Dgc(const CodecContext& context, const DgcOptions& options)
      : WithResidual(context),
        options_(options),
        momentum_(static_cast<float>(context.momentum)),
        nesterov_(context.nesterov),
        velocity_(count()) {
    set_progress(0);
  }

  std::string describe() const override {
    return fmt::format("dgc:ratio={},warmup={},masking={}", options_.ratio, options_.warmup_epochs, options_.masking ? 1 : 0);
  }

  std::size_t largest_bytes() const override {
    const double most = options_.warmup_epochs > 0 ? std::max(options_.ratio, kWarmup[0]) : options_.ratio;
    return largest_sparse_bytes(count(), components_of(most, count()));
  }

  void set_progress(double epoch) override {
    double ratio = options_.ratio;
    if (epoch < options_.warmup_epochs) {
      const double stage = std::max(0.0, epoch) / options_.warmup_epochs * static_cast<double>(kWarmup.size());
      ratio = std::max(ratio, kWarmup[std::min(kWarmup.size() - 1, static_cast<std::size_t>(stage))]);
    }
    k_ = components_of(ratio, count());
  }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    const auto kernel = nesterov_ ? HWY_DYNAMIC_DISPATCH(accumulate_nesterov) : HWY_DYNAMIC_DISPATCH(accumulate_heavy_ball);
    kernel(momentum_, update.data(), velocity_.data(), residual().data(), count());
    const std::span<const std::uint32_t> indices = largest_.find(residual(), k_);
    encode_sparse(residual(), indices, bytes);
    float* const kept = residual().data();
    for (const std::uint32_t index : indices) kept[index] = 0;
    if (!options_.masking) return;
    for (const std::uint32_t index : indices) velocity_.data()[index] = 0;
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    return decode_sparse(bytes, update);
  }

  bool corrects_momentum() const override { return true; }

  void list_state(params::StateList& state) override {
    WithResidual::list_state(state);
    state.add("velocity", velocity_.span().first(count()));
  }

 private:
  DgcOptions options_;
  float momentum_;
  bool nesterov_;
  AlignedFloats velocity_;
  std::size_t k_ = 0;
  LargestComponents largest_;
};

}  // namespace

std::unique_ptr<Codec> make_dgc(const CodecContext& context, const DgcOptions& options) { return std::make_unique<Dgc>(context, options); }

}  // namespace starling::codec
#endif
