// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One bit to a component (Seide, Fu, Droppo, Li, Yu: "1-bit stochastic gradient descent and its application to data-parallel distributed
// training of speech DNNs", Interspeech 2014): its sign. A block of 512 is reconstructed by the mean of its positives (zero among them) and
// the mean of its negatives; what that misses stays in the residual. Deviation: blocks of the flat vector, not columns of matrices.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "starling/codec/codecs.h"
#include "starling/codec/wire.h"
#include "starling/codec/with_residual.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/one_bit.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

inline constexpr std::size_t kBitBytes = kOneBitBlock / 8;

// One whole block; those of its floats from `used` on are zero and do not count. Sums are of x / 512, an exact division, so that they stay
// finite where x is.
HWY_INLINE void encode_block(const float* HWY_RESTRICT update, float* HWY_RESTRICT residual, std::size_t used, std::byte* means,
                             std::uint8_t* HWY_RESTRICT bits) {
  Vector positive[kVectors];
  Vector negative[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) positive[v] = negative[v] = hn::Zero(kTag);
  for (std::size_t i = 0; i < kOneBitBlock; i += kGroup) {
    std::uint32_t byte = 0;
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * kLanes;
      const auto x = hn::Add(hn::LoadU(kTag, update + at), hn::LoadU(kTag, residual + at));
      hn::StoreU(x, kTag, residual + at);
      const auto is_positive = hn::Ge(x, hn::Zero(kTag));
      const auto part = hn::Mul(x, hn::Set(kTag, 1.0F / kOneBitBlock));
      positive[v] = hn::Add(positive[v], hn::IfThenElseZero(is_positive, part));
      negative[v] = hn::Add(negative[v], hn::IfThenZeroElse(is_positive, part));
      byte |= group_bits(is_positive, v);
    }
    bits[i / kGroup] = static_cast<std::uint8_t>(byte);
  }
  std::size_t positives = 0;
  for (std::size_t i = 0; i < kBitBytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bits + i, 8);
    positives += static_cast<std::size_t>(std::popcount(word));
  }
  const std::size_t negatives = kOneBitBlock - positives;
  positives -= kOneBitBlock - used < positives ? kOneBitBlock - used : positives;
  const float high = positives == 0 ? 0 : sum_of_group(positive) / static_cast<float>(positives) * kOneBitBlock;
  const float low = negatives == 0 ? 0 : sum_of_group(negative) / static_cast<float>(negatives) * kOneBitBlock;
  store(means, high);
  store(means + sizeof(float), low);
  for (std::size_t i = 0; i < kOneBitBlock; i += kLanes) {
    const auto x = hn::LoadU(kTag, residual + i);
    const auto decoded = hn::IfThenElse(hn::Ge(x, hn::Zero(kTag)), hn::Set(kTag, high), hn::Set(kTag, low));
    hn::StoreU(hn::Sub(x, decoded), kTag, residual + i);
  }
}

void encode_one_bit(const float* update, float* residual, std::byte* means, std::byte* to, std::size_t count) {
  auto* bits = reinterpret_cast<std::uint8_t*>(to);
  const std::size_t whole = count - count % kOneBitBlock;
  for (std::size_t i = 0; i < whole; i += kOneBitBlock) {
    encode_block(update + i, residual + i, kOneBitBlock, means + i / kOneBitBlock * 2 * sizeof(float), bits + i / 8);
  }
  const std::size_t rest = count - whole;
  if (rest == 0) return;
  alignas(64) float last_update[kOneBitBlock] = {};
  alignas(64) float last_residual[kOneBitBlock] = {};
  std::uint8_t last_bits[kBitBytes];
  std::memcpy(last_update, update + whole, rest * sizeof(float));
  std::memcpy(last_residual, residual + whole, rest * sizeof(float));
  encode_block(last_update, last_residual, rest, means + whole / kOneBitBlock * 2 * sizeof(float), last_bits);
  std::memcpy(residual + whole, last_residual, rest * sizeof(float));
  if (rest % 8 != 0) last_bits[rest / 8] = static_cast<std::uint8_t>(last_bits[rest / 8] & ((1U << rest % 8) - 1U));
  std::memcpy(bits + whole / 8, last_bits, (rest + 7) / 8);
}

// False if a mean is not finite.
bool decode_one_bit(const std::byte* means, const std::byte* from, float* to, std::size_t count, bool stream) {
  alignas(64) float chunk[kOneBitBlock];
  bool finite = true;
  for (std::size_t begin = 0; begin < count; begin += kOneBitBlock) {
    const std::size_t size = count - begin < kOneBitBlock ? count - begin : kOneBitBlock;
    const std::byte* own = means + begin / kOneBitBlock * 2 * sizeof(float);
    const auto high = load<float>(own);
    const auto low = load<float>(own + sizeof(float));
    finite = finite && std::isfinite(high) && std::isfinite(low);
    for (std::size_t i = 0; i < size; i += 32) {
      std::uint32_t word = 0;
      const std::byte* const bits = from + (begin + i) / 8;
      if (size - i >= 32) {
        std::memcpy(&word, bits, 4);
      } else {
        std::memcpy(&word, bits, (size - i + 7) / 8);
      }
      for (std::size_t j = 0; j < 32; j += kLanes) {
        hn::Store(hn::IfThenElse(bit_mask(word, j), hn::Set(kTag, high), hn::Set(kTag, low)), kTag, chunk + i + j);
      }
    }
    deliver(to + begin, chunk, size * sizeof(float), stream);
  }
  if (stream) hwy::FlushStream();
  return finite;
}

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::codec {
namespace {

HWY_EXPORT(encode_one_bit);
HWY_EXPORT(decode_one_bit);

class OneBit final : public WithResidual {
 public:
  explicit OneBit(const CodecContext& context) : WithResidual(context) {}

  std::string describe() const override { return "1bit"; }
  std::size_t largest_bytes() const override { return bits_at() + (count() + 7) / 8; }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    bytes.resize(largest_bytes());
    write_header(bytes.data(), header());
    HWY_DYNAMIC_DISPATCH(encode_one_bit)
    (update.data(), residual().data(), bytes.data() + kHeaderBytes, bytes.data() + bits_at(), count());
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    if (auto error = check_message(bytes, header(), largest_bytes())) return error;
    const bool finite = HWY_DYNAMIC_DISPATCH(decode_one_bit)(bytes.data() + kHeaderBytes, bytes.data() + bits_at(), update.data(), count(),
                                                             count() >= kStreamFloats);
    if (finite) return std::nullopt;
    return not_finite("a mean");
  }

 private:
  Header header() const { return {.format = Format::one_bit, .parameter = kOneBitBlock, .count = count()}; }
  std::size_t bits_at() const { return kHeaderBytes + (count() + kOneBitBlock - 1) / kOneBitBlock * 2 * sizeof(float); }
};

}  // namespace

std::unique_ptr<Codec> make_one_bit(const CodecContext& context) { return std::make_unique<OneBit>(context); }

}  // namespace starling::codec
#endif
