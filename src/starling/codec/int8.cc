// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Eight bits to a component and one scale to a block of 256 (Dettmers: "8-bit approximations for parallelism in deep learning", 2016, with
// a linear code): scale = max |x| / 127, q = round(x / scale), with error feedback. The scales come first, then all q.
#include <cfloat>
#include <cstring>

#include "starling/codec/codecs.h"
#include "starling/codec/wire.h"
#include "starling/codec/with_residual.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/int8.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

// Leaves update + residual in the residual, and returns its largest magnitude.
HWY_INLINE float add_and_find_largest(const float* HWY_RESTRICT update, float* HWY_RESTRICT residual, std::size_t size) {
  auto largest = hn::Zero(kTag);
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const auto x = hn::Add(hn::LoadU(kTag, update + i), hn::LoadU(kTag, residual + i));
    hn::StoreU(x, kTag, residual + i);
    largest = hn::Max(largest, hn::Abs(x));
  }
  float result = hn::GetLane(hn::MaxOfLanes(kTag, largest));
  for (; i < size; ++i) {
    residual[i] += update[i];
    const float magnitude = residual[i] < 0 ? -residual[i] : residual[i];
    if (magnitude > result) result = magnitude;
  }
  return result;
}

template <class D>
HWY_INLINE void quantise_at(D tag, float* HWY_RESTRICT residual, std::int8_t* HWY_RESTRICT to, float scale, float inverse) {
  const hn::RebindToSigned<D> words;
  const auto x = hn::LoadU(tag, residual);
  // Added to this number, which has no digits after the point left, a small one is rounded to the nearest whole, ties to even.
  const auto magic = hn::Set(tag, 12582912.0F);
  const auto sum = hn::Add(hn::Mul(x, hn::Set(tag, inverse)), magic);
  const auto q = hn::Sub(hn::BitCast(words, sum), hn::BitCast(words, magic));
  hn::StoreU(hn::DemoteTo(hn::Rebind<std::int8_t, D>(), q), hn::Rebind<std::int8_t, D>(), to);
  hn::StoreU(hn::Sub(x, hn::Mul(hn::Sub(sum, magic), hn::Set(tag, scale))), tag, residual);
}

void encode_int8(const float* HWY_RESTRICT update, float* HWY_RESTRICT residual, std::byte* scales, std::byte* to, std::size_t count,
                 bool stream) {
  alignas(64) std::int8_t chunk[kInt8Block];
  for (std::size_t begin = 0; begin < count; begin += kInt8Block) {
    const std::size_t size = count - begin < kInt8Block ? count - begin : kInt8Block;
    float* HWY_RESTRICT own = residual + begin;
    const float largest = add_and_find_largest(update + begin, own, size);
    // Where 127 / largest is not a float any more, all of it stays in the residual.
    const bool tiny = largest < 256 * FLT_MIN;
    const float scale = tiny ? 0 : largest / 127 < FLT_MAX / 128 ? largest / 127 : FLT_MAX / 128;
    const float inverse = tiny ? 0 : 127 / largest;
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) quantise_at(kTag, own + i, chunk + i, scale, inverse);
    for (; i < size; ++i) quantise_at(kOne, own + i, chunk + i, scale, inverse);
    store(scales + begin / kInt8Block * sizeof(float), scale);
    deliver(to + begin, chunk, size, stream);
  }
  if (stream) hwy::FlushStream();
}

template <class D>
HWY_INLINE void restore_at(D tag, const std::int8_t* from, float scale, float* to) {
  const auto q = hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(hn::Rebind<std::int8_t, D>(), from));
  hn::StoreU(hn::Mul(hn::ConvertTo(tag, q), hn::Set(tag, scale)), tag, to);
}

// False if a scale is negative, or such that a product with it need not be finite.
bool decode_int8(const std::byte* scales, const std::byte* from, float* to, std::size_t count, bool stream) {
  alignas(64) float chunk[kInt8Block];
  bool good = true;
  for (std::size_t begin = 0; begin < count; begin += kInt8Block) {
    const std::size_t size = count - begin < kInt8Block ? count - begin : kInt8Block;
    const auto scale = load<float>(scales + begin / kInt8Block * sizeof(float));
    good = good && scale >= 0 && scale <= FLT_MAX / 128;
    const auto* q = reinterpret_cast<const std::int8_t*>(from + begin);
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) restore_at(kTag, q + i, scale, chunk + i);
    for (; i < size; ++i) restore_at(kOne, q + i, scale, chunk + i);
    deliver(to + begin, chunk, size * sizeof(float), stream);
  }
  if (stream) hwy::FlushStream();
  return good;
}

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::codec {
namespace {

HWY_EXPORT(encode_int8);
HWY_EXPORT(decode_int8);

class Int8 final : public WithResidual {
 public:
  explicit Int8(const CodecContext& context) : WithResidual(context) {}

  std::string describe() const override { return "int8"; }
  std::size_t largest_bytes() const override { return values_at() + count(); }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    bytes.resize(largest_bytes());
    write_header(bytes.data(), header());
    HWY_DYNAMIC_DISPATCH(encode_int8)
    (update.data(), residual().data(), bytes.data() + kHeaderBytes, bytes.data() + values_at(), count(), count() >= kStreamFloats);
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    if (auto error = check_message(bytes, header(), largest_bytes())) return error;
    const bool good = HWY_DYNAMIC_DISPATCH(decode_int8)(bytes.data() + kHeaderBytes, bytes.data() + values_at(), update.data(), count(),
                                                        count() >= kStreamFloats);
    if (good) return std::nullopt;
    return std::string("the encoded update has a scale that is negative, too large or not a number");
  }

 private:
  Header header() const { return {.format = Format::int8, .parameter = kInt8Block, .count = count()}; }
  std::size_t values_at() const { return kHeaderBytes + (count() + kInt8Block - 1) / kInt8Block * sizeof(float); }
};

}  // namespace

std::unique_ptr<Codec> make_int8(const CodecContext& context) { return std::make_unique<Int8>(context); }

}  // namespace starling::codec
#endif
