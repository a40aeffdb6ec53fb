// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// fp16 (IEEE 754 binary16) and bf16 (the upper half of a float), rounded to the nearest, ties to even, with error feedback. What is too
// large for the format is sent as its largest value; the rest stays in the residual like every other rounding error.
#include <cstring>

#include "starling/codec/codecs.h"
#include "starling/codec/wire.h"
#include "starling/codec/with_residual.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/half.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

template <class D>
using Bits = hn::RebindToUnsigned<D>;
template <class D>
using Halves = hn::Rebind<std::uint16_t, D>;

template <class D>
HWY_INLINE hn::Vec<Halves<D>> low_halves(D /*tag*/, hn::Vec<Bits<D>> words) {
  return hn::DemoteTo(Halves<D>(), hn::BitCast(hn::RebindToSigned<D>(), words));
}

struct Bf16 {
  static constexpr std::uint16_t kInfinity = 0x7f80;

  // `rounded` is what the result widens to.
  template <class D>
  static HWY_INLINE hn::Vec<Halves<D>> narrow(D tag, hn::Vec<D> x, hn::Vec<D>& rounded) {
    const Bits<D> bits;
    const auto largest = hn::BitCast(tag, hn::Set(bits, 0x7f7f0000U));
    x = hn::Min(hn::Max(x, hn::Neg(largest)), largest);
    const auto word = hn::BitCast(bits, x);
    const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(bits, 1U));
    const auto upper = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(bits, 0x7fffU))));
    rounded = hn::BitCast(tag, hn::ShiftLeft<16>(upper));
    return low_halves(tag, upper);
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D tag, hn::Vec<Halves<D>> half) {
    return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(Bits<D>(), half)));
  }
};

struct Fp16 {
  static constexpr std::uint16_t kInfinity = 0x7c00;

  template <class D>
  static HWY_INLINE hn::Vec<Halves<D>> narrow(D tag, hn::Vec<D> x, hn::Vec<D>& rounded) {
    const auto largest = hn::Set(tag, 65504.0F);
    x = hn::Min(hn::Max(x, hn::Neg(largest)), largest);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
    const auto half = hn::BitCast(Halves<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x));
#else
    // Giesen's conversion: numbers below 2^-14 are rounded by adding one whose last bit has the value of fp16's last; the others by adding
    // just under half of their last bit, or just half if that bit is odd.
    const Bits<D> bits;
    const auto word = hn::BitCast(bits, x);
    const auto sign = hn::And(word, hn::Set(bits, 0x80000000U));
    const auto magnitude = hn::Xor(word, sign);
    const auto magic = hn::Set(bits, 126U << 23U);
    const auto tiny = hn::Sub(hn::BitCast(bits, hn::Add(hn::BitCast(tag, magnitude), hn::BitCast(tag, magic))), magic);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(bits, 1U));
    const auto usual = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(bits, 0xc8000fffU)), odd));
    const auto is_tiny = hn::RebindMask(bits, hn::Lt(hn::BitCast(tag, magnitude), hn::BitCast(tag, hn::Set(bits, 113U << 23U))));
    const auto half = low_halves(tag, hn::Or(hn::IfThenElse(is_tiny, tiny, usual), hn::ShiftRight<16>(sign)));
#endif
    rounded = widen(tag, half);
    return half;
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D tag, hn::Vec<Halves<D>> half) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
    return hn::PromoteTo(tag, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
#else
    // Moved into place, the exponent is too small by 127 - 15; the product with a power of two is exact, also from the tiniest numbers.
    const Bits<D> bits;
    const auto word = hn::PromoteTo(bits, half);
    const auto sign = hn::ShiftLeft<16>(hn::And(word, hn::Set(bits, 0x8000U)));
    const auto magnitude = hn::BitCast(tag, hn::ShiftLeft<13>(hn::And(word, hn::Set(bits, 0x7fffU))));
    const auto scaled = hn::Mul(magnitude, hn::BitCast(tag, hn::Set(bits, (127U + 112U) << 23U)));
    return hn::BitCast(tag, hn::Or(hn::BitCast(bits, scaled), sign));
#endif
  }
};

inline constexpr std::size_t kChunk = 1024;

template <class Kind, class D>
HWY_INLINE void encode_at(D tag, const float* HWY_RESTRICT update, float* HWY_RESTRICT residual, std::uint16_t* HWY_RESTRICT halves) {
  const auto x = hn::Add(hn::LoadU(tag, update), hn::LoadU(tag, residual));
  auto rounded = hn::Zero(tag);
  hn::StoreU(Kind::narrow(tag, x, rounded), Halves<D>(), halves);
  hn::StoreU(hn::Sub(x, rounded), tag, residual);
}

template <class Kind>
HWY_INLINE void encode(const float* HWY_RESTRICT update, float* HWY_RESTRICT residual, std::byte* to, std::size_t count, bool stream) {
  alignas(64) std::uint16_t chunk[kChunk];
  for (std::size_t begin = 0; begin < count; begin += kChunk) {
    const std::size_t size = count - begin < kChunk ? count - begin : kChunk;
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) encode_at<Kind>(kTag, update + begin + i, residual + begin + i, chunk + i);
    for (; i < size; ++i) encode_at<Kind>(kOne, update + begin + i, residual + begin + i, chunk + i);
    deliver(to + begin * sizeof(std::uint16_t), chunk, size * sizeof(std::uint16_t), stream);
  }
  if (stream) hwy::FlushStream();
}

// False if one of the values is not finite.
template <class Kind>
HWY_INLINE bool decode(const std::byte* from, float* to, std::size_t count, bool stream) {
  alignas(64) std::uint16_t halves[kChunk];  // A copy, because what arrives may lie at any address.
  alignas(64) float chunk[kChunk];
  const Halves<Tag> tag;
  bool finite = true;
  for (std::size_t begin = 0; begin < count; begin += kChunk) {
    const std::size_t size = count - begin < kChunk ? count - begin : kChunk;
    std::memcpy(halves, from + begin * sizeof(std::uint16_t), size * sizeof(std::uint16_t));
    auto largest = hn::Zero(tag);
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      const auto half = hn::Load(tag, halves + i);
      largest = hn::Max(largest, hn::And(half, hn::Set(tag, std::uint16_t{0x7fff})));
      hn::Store(Kind::widen(kTag, half), kTag, chunk + i);
    }
    finite = finite && hn::AllTrue(tag, hn::Lt(largest, hn::Set(tag, Kind::kInfinity)));
    for (; i < size; ++i) {
      finite = finite && (halves[i] & 0x7fffU) < Kind::kInfinity;
      hn::StoreU(Kind::widen(kOne, hn::LoadU(Halves<One>(), halves + i)), kOne, chunk + i);
    }
    deliver(to + begin, chunk, size * sizeof(float), stream);
  }
  if (stream) hwy::FlushStream();
  return finite;
}

void encode_fp16(const float* update, float* residual, std::byte* to, std::size_t count, bool stream) {
  encode<Fp16>(update, residual, to, count, stream);
}
void encode_bf16(const float* update, float* residual, std::byte* to, std::size_t count, bool stream) {
  encode<Bf16>(update, residual, to, count, stream);
}
bool decode_fp16(const std::byte* from, float* to, std::size_t count, bool stream) { return decode<Fp16>(from, to, count, stream); }
bool decode_bf16(const std::byte* from, float* to, std::size_t count, bool stream) { return decode<Bf16>(from, to, count, stream); }

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::codec {
namespace {

HWY_EXPORT(encode_fp16);
HWY_EXPORT(encode_bf16);
HWY_EXPORT(decode_fp16);
HWY_EXPORT(decode_bf16);

class Half final : public WithResidual {
 public:
  Half(const CodecContext& context, Format format) : WithResidual(context), format_(format) {}

  std::string describe() const override { return is_fp16() ? "fp16" : "bf16"; }
  std::size_t largest_bytes() const override { return kHeaderBytes + count() * sizeof(std::uint16_t); }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    bytes.resize(largest_bytes());
    write_header(bytes.data(), {.format = format_, .count = count()});
    const auto kernel = is_fp16() ? HWY_DYNAMIC_DISPATCH(encode_fp16) : HWY_DYNAMIC_DISPATCH(encode_bf16);
    kernel(update.data(), residual().data(), bytes.data() + kHeaderBytes, count(), count() >= kStreamFloats);
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    if (auto error = check_message(bytes, {.format = format_, .count = count()}, largest_bytes())) return error;
    const auto kernel = is_fp16() ? HWY_DYNAMIC_DISPATCH(decode_fp16) : HWY_DYNAMIC_DISPATCH(decode_bf16);
    if (kernel(bytes.data() + kHeaderBytes, update.data(), count(), count() >= kStreamFloats)) return std::nullopt;
    return not_finite("a value");
  }

 private:
  bool is_fp16() const { return format_ == Format::fp16; }

  Format format_;
};

}  // namespace

std::unique_ptr<Codec> make_fp16(const CodecContext& context) { return std::make_unique<Half>(context, Format::fp16); }
std::unique_ptr<Codec> make_bf16(const CodecContext& context) { return std::make_unique<Half>(context, Format::bf16); }

}  // namespace starling::codec
#endif
