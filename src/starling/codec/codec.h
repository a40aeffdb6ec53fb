// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// An update (a gradient, or a difference of weights) becomes bytes and an update again. Most codecs lose something; those with error
// feedback keep what they lost, the residual, and add it to the next update, so that over time nothing is lost:
//
//   Σ decoded + residual = Σ encoded updates        (to float accuracy; with momentum correction, of the updates so corrected)
//
//   std::unique_ptr<Codec> codec = make_codec("topk:0.01", {.layout = layout, .seed = 1, .rank = 3});
//   std::vector<std::byte> bytes;
//   codec->encode(gradient, bytes);
//   Decoded: std::optional<std::string> error = codec->decode(bytes, update);
//
// What each one does, its bytes and its paper are in docs/codecs.md. To write a codec: derive, add it to the table in make_codec.cc, add a
// page section; tests/contract/codec_test.cc runs on every entry of the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/params/layout.h"
#include "starling/params/state.h"

namespace starling::codec {

// What a codec is made for.
struct CodecContext {
  params::Layout layout{};  // Names the parts of the vectors, whose length is layout.parameter_count().
  std::uint64_t seed = 1;   // With rank: of the random numbers of random-k and of PowerSGD's first factors.
  std::uint32_t rank = 0;   // The sender's.
  double momentum = 0;      // DGC: of the run's optimiser, which then takes plain steps.
  bool nesterov = false;    // DGC.
};

// One sender's codec for one stream of updates. Not thread-safe. Decoding needs no state of the sender: any codec of the same
// specification and context layout decodes what another has encoded.
class Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  // "topk:0.01", with all options written out; make_codec reads it back.
  virtual std::string describe() const = 0;

  // What was encoded is decoded to the same bits.
  virtual bool exact() const { return false; }

  // The most bytes that encode() can give.
  virtual std::size_t largest_bytes() const = 0;

  // Replaces `bytes` by the encoded update plus whatever was kept back, and keeps back what is lost. Does not allocate once `bytes` has the
  // capacity of largest_bytes(). The update has layout.parameter_count() finite floats.
  virtual void encode(std::span<const float> update, std::vector<std::byte>& bytes) = 0;

  // Overwrites all of `update`. Returns what is wrong with the bytes, if anything is; then `update` is undefined but nothing else was
  // touched. Bytes may come from anywhere: every length, index and count in them is checked.
  virtual std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) = 0;

  // Where the run stands, in epochs; before encode(). For codecs that begin gently (DGC).
  virtual void set_progress(double epoch) { (void)epoch; }

  // What is kept back at this moment, added to `sum` (layout.parameter_count() floats): for tests and metrics.
  virtual void add_residual(std::span<float> sum) const { (void)sum; }

  // DGC: momentum is in the codec, so the optimiser must not have any.
  virtual bool corrects_momentum() const { return false; }

  // For checkpoints: residuals, counters.
  virtual void list_state(params::StateList& state) { (void)state; }
};

// `specification` is NAME or NAME:VALUE or NAME:KEY=VALUE,KEY=VALUE. Throws UserError for an unknown name (with the nearest one), an
// unknown option, or a value out of range.
std::unique_ptr<Codec> make_codec(const std::string& specification, const CodecContext& context);

// For help: name, form with defaults, one sentence.
struct CodecDescription {
  std::string name;
  std::string form;     // "topk[:RATIO]"
  std::string summary;  // "the RATIO of the components that are largest, with error feedback [0.01]"
};
const std::vector<CodecDescription>& codec_descriptions();

}  // namespace starling::codec
