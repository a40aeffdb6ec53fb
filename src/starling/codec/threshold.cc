// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Threshold encoding (Strom: "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech 2015, section 3.2):
// r += g; where |r| > τ send the place and the sign, and take ±τ away from r. The receiver adds ±τ there.
//
// A block of 128 components is one byte, how many of them are sent, and for each of these a byte: its place in the block, and 128 if it is
// negative; places ascend. Beyond 32 of them it is the byte 255 and two bit maps of 16 bytes, the positive and the negative ones.
#include <bit>
#include <cstring>

#include "starling/codec/codecs.h"
#include "starling/codec/wire.h"
#include "starling/codec/with_residual.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/threshold.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

inline constexpr std::size_t kMostListed = 32;
inline constexpr std::uint8_t kMaps = 255;
inline constexpr std::size_t kMapBytes = kThresholdBlock / 8;
inline constexpr std::size_t kWords = kThresholdBlock / 64;

// Moves one whole block; the bits say what is to be sent.
HWY_INLINE void move_block(const float* HWY_RESTRICT update, float* HWY_RESTRICT residual, float threshold,
                           std::uint64_t (&positive)[kWords], std::uint64_t (&negative)[kWords]) {
  const auto limit = hn::Set(kTag, threshold);
  for (std::size_t word = 0; word < kWords; ++word) {
    std::uint64_t above = 0;
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < 64; i += kLanes) {
      const std::size_t at = word * 64 + i;
      const auto x = hn::Add(hn::LoadU(kTag, update + at), hn::LoadU(kTag, residual + at));
      const auto is_above = hn::Gt(x, limit);
      const auto is_below = hn::Lt(x, hn::Neg(limit));
      const auto sent = hn::Sub(hn::IfThenElseZero(is_above, limit), hn::IfThenElseZero(is_below, limit));
      hn::StoreU(hn::Sub(x, sent), kTag, residual + at);
      above |= static_cast<std::uint64_t>(group_bits(is_above, 0)) << i;
      below |= static_cast<std::uint64_t>(group_bits(is_below, 0)) << i;
    }
    positive[word] = above;
    negative[word] = below;
  }
}

// Returns the end of what it has written.
HWY_INLINE std::uint8_t* write_block(const std::uint64_t (&positive)[kWords], const std::uint64_t (&negative)[kWords], std::uint8_t* to) {
  std::size_t sent = 0;
  for (std::size_t word = 0; word < kWords; ++word) sent += static_cast<std::size_t>(std::popcount(positive[word] | negative[word]));
  if (sent > kMostListed) {
    *to = kMaps;
    std::memcpy(to + 1, positive, kMapBytes);
    std::memcpy(to + 1 + kMapBytes, negative, kMapBytes);
    return to + 1 + 2 * kMapBytes;
  }
  *to++ = static_cast<std::uint8_t>(sent);
  for (std::size_t word = 0; word < kWords; ++word) {
    for (std::uint64_t left = positive[word] | negative[word]; left != 0; left &= left - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(left));
      *to++ = static_cast<std::uint8_t>(word * 64 + bit + (negative[word] >> bit & 1U) * 128);
    }
  }
  return to;
}

// Returns how many bytes it has written.
std::size_t encode_threshold(const float* update, float* residual, float threshold, std::byte* to, std::size_t count) {
  auto* const begin = reinterpret_cast<std::uint8_t*>(to);
  std::uint8_t* end = begin;
  std::uint64_t positive[kWords];
  std::uint64_t negative[kWords];
  const std::size_t whole = count - count % kThresholdBlock;
  for (std::size_t i = 0; i < whole; i += kThresholdBlock) {
    move_block(update + i, residual + i, threshold, positive, negative);
    end = write_block(positive, negative, end);
  }
  const std::size_t rest = count - whole;
  if (rest > 0) {
    alignas(64) float last_update[kThresholdBlock] = {};
    alignas(64) float last_residual[kThresholdBlock] = {};
    std::memcpy(last_update, update + whole, rest * sizeof(float));
    std::memcpy(last_residual, residual + whole, rest * sizeof(float));
    move_block(last_update, last_residual, threshold, positive, negative);
    std::memcpy(residual + whole, last_residual, rest * sizeof(float));
    end = write_block(positive, negative, end);
  }
  return static_cast<std::size_t>(end - begin);
}

// Puts the components of a list into a block of zeros. False if they do not ascend or are beyond `size`.
HWY_INLINE bool put_list(const std::uint8_t* places, std::size_t sent, std::size_t size, float threshold, float* block) {
  std::size_t least = 0;
  for (std::size_t i = 0; i < sent; ++i) {
    const std::size_t place = places[i] & 127U;
    if (place < least || place >= size) return false;
    block[place] = places[i] >= 128 ? -threshold : threshold;
    least = place + 1;
  }
  return true;
}

// False if a component is both positive and negative, or beyond `size`.
HWY_INLINE bool put_maps(const std::uint8_t* maps, std::size_t size, float threshold, float* block) {
  for (std::size_t word = 0; word < kWords; ++word) {
    std::uint64_t positive = 0;
    std::uint64_t negative = 0;
    std::memcpy(&positive, maps + word * 8, 8);
    std::memcpy(&negative, maps + kMapBytes + word * 8, 8);
    const std::size_t used = size <= word * 64 ? 0 : size - word * 64;
    const std::uint64_t valid = used >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << used) - 1;
    if ((positive & negative) != 0 || ((positive | negative) & ~valid) != 0) return false;
  }
  const auto limit = hn::Set(kTag, threshold);
  for (std::size_t begin = 0; begin < kThresholdBlock; begin += 32) {
    std::uint32_t positive = 0;
    std::uint32_t negative = 0;
    std::memcpy(&positive, maps + begin / 8, 4);
    std::memcpy(&negative, maps + kMapBytes + begin / 8, 4);
    for (std::size_t i = 0; i < 32; i += kLanes) {
      const auto lower = hn::IfThenElseZero(bit_mask(negative, i), hn::Neg(limit));
      hn::Store(hn::IfThenElse(bit_mask(positive, i), limit, lower), kTag, block + begin + i);
    }
  }
  return true;
}

// False if the bytes are no whole number of such blocks for exactly `count` floats.
bool decode_threshold(const std::byte* from, std::size_t bytes, float threshold, float* to, std::size_t count, bool stream) {
  const auto* next = reinterpret_cast<const std::uint8_t*>(from);
  const std::uint8_t* const end = next + bytes;
  alignas(64) float listed[kThresholdBlock] = {};  // Zero again after every block.
  alignas(64) float mapped[kThresholdBlock];
  for (std::size_t begin = 0; begin < count; begin += kThresholdBlock) {
    const std::size_t size = count - begin < kThresholdBlock ? count - begin : kThresholdBlock;
    if (next == end) return false;
    const std::size_t sent = *next++;
    const auto left = static_cast<std::size_t>(end - next);
    if (sent == kMaps) {
      if (left < 2 * kMapBytes || !put_maps(next, size, threshold, mapped)) return false;
      deliver(to + begin, mapped, size * sizeof(float), stream);
      next += 2 * kMapBytes;
      continue;
    }
    if (sent > kMostListed || left < sent || !put_list(next, sent, size, threshold, listed)) return false;
    deliver(to + begin, listed, size * sizeof(float), stream);
    for (std::size_t i = 0; i < sent; ++i) listed[next[i] & 127U] = 0;
    next += sent;
  }
  if (stream) hwy::FlushStream();
  return next == end;
}

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::codec {
namespace {

HWY_EXPORT(encode_threshold);
HWY_EXPORT(decode_threshold);

class Threshold final : public WithResidual {
 public:
  Threshold(const CodecContext& context, float threshold) : WithResidual(context), threshold_(threshold) {}

  std::string describe() const override { return fmt::format("threshold:{}", threshold_); }
  std::size_t largest_bytes() const override {
    return kHeaderBytes + (count() + kThresholdBlock - 1) / kThresholdBlock * (1 + kThresholdBlock / 4);
  }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    bytes.resize(largest_bytes());
    write_header(bytes.data(), {.format = Format::threshold, .parameter = std::bit_cast<std::uint32_t>(threshold_), .count = count()});
    const std::size_t length =
        HWY_DYNAMIC_DISPATCH(encode_threshold)(update.data(), residual().data(), threshold_, bytes.data() + kHeaderBytes, count());
    bytes.resize(kHeaderBytes + length);
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    std::uint32_t parameter = 0;
    if (auto error = read_header(bytes, Format::threshold, count(), parameter)) return error;
    if (parameter != std::bit_cast<std::uint32_t>(threshold_)) {
      return fmt::format("the update was encoded with the threshold {}, but {} was expected", std::bit_cast<float>(parameter), threshold_);
    }
    const bool good = HWY_DYNAMIC_DISPATCH(decode_threshold)(bytes.data() + kHeaderBytes, bytes.size() - kHeaderBytes, threshold_,
                                                             update.data(), count(), count() >= kStreamFloats);
    if (good) return std::nullopt;
    return std::string("the encoded update has a block with wrong places, or its length is wrong");
  }

 private:
  float threshold_;
};

}  // namespace

std::unique_ptr<Codec> make_threshold(const CodecContext& context, float threshold) {
  return std::make_unique<Threshold>(context, threshold);
}

}  // namespace starling::codec
#endif
