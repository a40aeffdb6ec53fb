// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Top-k with error feedback (Aji, Heafield: "Sparse communication for distributed gradient descent", EMNLP 2017; Stich, Cordonnier, Jaggi:
// "Sparsified SGD with memory", NeurIPS 2018, algorithm 1): r += g; send the k components of r that are largest in magnitude and set them
// to zero in r. Exactly k of the whole flat vector, not of every layer.
#include "starling/codec/codecs.h"
#include "starling/codec/largest.h"
#include "starling/codec/sparse.h"
#include "starling/codec/with_residual.h"

namespace starling::codec {
namespace {

class TopK final : public WithResidual {
 public:
  TopK(const CodecContext& context, double ratio) : WithResidual(context), ratio_(ratio), k_(components_of(ratio, count())) {}

  std::string describe() const override { return fmt::format("topk:{}", ratio_); }
  std::size_t largest_bytes() const override { return largest_sparse_bytes(count(), k_); }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    add_floats(residual(), update);
    const std::span<const std::uint32_t> indices = largest_.find(residual(), k_);
    encode_sparse(residual(), indices, bytes);
    float* const kept = residual().data();
    for (const std::uint32_t index : indices) kept[index] = 0;
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    return decode_sparse(bytes, update);
  }

 private:
  double ratio_;
  std::size_t k_;
  LargestComponents largest_;
};

}  // namespace

std::unique_ptr<Codec> make_top_k(const CodecContext& context, double ratio) { return std::make_unique<TopK>(context, ratio); }

}  // namespace starling::codec
