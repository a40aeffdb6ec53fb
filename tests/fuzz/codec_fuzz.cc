// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// All decoders in one program: the first byte of an input chooses the codec, the rest are its bytes.
#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>

#include "fuzz/fuzz.h"
#include "starling/codec/codec.h"

namespace {

using starling::codec::Codec;

const std::vector<std::unique_ptr<Codec>>& codecs() {
  static const std::vector<std::unique_ptr<Codec>> all = [] {
    starling::codec::CodecContext context;
    context.layout.add("weight", {20, 25});
    context.layout.add("bias", {43});
    std::vector<std::unique_ptr<Codec>> made;
    for (const auto& description : starling::codec::codec_descriptions()) {
      made.push_back(starling::codec::make_codec(description.name, context));
    }
    return made;
  }();
  return all;
}

constexpr std::size_t kFloats = 543;

}  // namespace

std::vector<starling::fuzz::Bytes> starling::fuzz::seeds() {
  std::vector<Bytes> result;
  std::vector<std::byte> encoded;
  for (std::size_t i = 0; i < codecs().size(); ++i) {
    for (const float scale : {0.02F, 1.0F}) {
      std::vector<float> update(kFloats);
      for (std::size_t j = 0; j < kFloats; ++j) update[j] = scale * std::sin(static_cast<float>(j * j));
      codecs()[i]->encode(update, encoded);
      Bytes bytes{static_cast<std::uint8_t>(i)};
      for (const std::byte byte : encoded) bytes.push_back(static_cast<std::uint8_t>(byte));
      result.push_back(bytes);
    }
  }
  return result;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Codec& codec = *codecs()[data[0] % codecs().size()];
  std::vector<float> update(kFloats);  // Of just that size, so that a sanitizer sees a write beyond it.
  if (codec.decode(std::as_bytes(std::span(data + 1, size - 1)), update)) return 0;
  for (const float value : update) {
    if (!std::isfinite(value)) throw std::logic_error("a decoder let a value pass that is not finite");
  }
  return 0;
}
