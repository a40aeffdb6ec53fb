// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The floats as they are: the codec that loses nothing.
#include <cmath>
#include <cstring>

#include "starling/base/error.h"
#include "starling/codec/codecs.h"
#include "starling/codec/wire.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/fp32.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

// Copies floats; false if one of them is not finite.
bool copy_finite(const std::byte* from, float* to, std::size_t count, bool stream) {
  constexpr std::size_t kChunk = 1024;
  alignas(64) float chunk[kChunk];
  const hn::RebindToUnsigned<Tag> bits;
  bool finite = true;
  for (std::size_t begin = 0; begin < count; begin += kChunk) {
    const std::size_t size = count - begin < kChunk ? count - begin : kChunk;
    std::memcpy(chunk, from + begin * sizeof(float), size * sizeof(float));
    auto largest = hn::Zero(bits);
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      largest = hn::Max(largest, hn::And(hn::BitCast(bits, hn::Load(kTag, chunk + i)), hn::Set(bits, 0x7fffffffU)));
    }
    finite = finite && hn::AllTrue(bits, hn::Lt(largest, hn::Set(bits, 0x7f800000U)));
    for (; i < size; ++i) finite = finite && std::isfinite(chunk[i]);
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

HWY_EXPORT(copy_finite);

class Fp32 final : public Codec {
 public:
  explicit Fp32(const CodecContext& context) : count_(context.layout.parameter_count()) {}

  std::string describe() const override { return "fp32"; }
  bool exact() const override { return true; }
  std::size_t largest_bytes() const override { return kHeaderBytes + count_ * sizeof(float); }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    STARLING_CHECK(update.size() == count_, std::string("an update of another length than the codec's"));
    bytes.resize(largest_bytes());
    write_header(bytes.data(), {.format = Format::fp32, .count = count_});
    if (count_ > 0) std::memcpy(bytes.data() + kHeaderBytes, update.data(), update.size_bytes());
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    STARLING_CHECK(update.size() == count_, std::string("an update of another length than the codec's"));
    if (auto error = check_message(bytes, {.format = Format::fp32, .count = count_}, largest_bytes())) return error;
    if (HWY_DYNAMIC_DISPATCH(copy_finite)(bytes.data() + kHeaderBytes, update.data(), count_, count_ >= kStreamFloats)) return std::nullopt;
    return not_finite("a value");
  }

 private:
  std::size_t count_;
};

}  // namespace

std::unique_ptr<Codec> make_fp32(const CodecContext& context) { return std::make_unique<Fp32>(context); }

}  // namespace starling::codec
#endif
