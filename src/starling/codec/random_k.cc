// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Random-k with error feedback (Stich, Cordonnier, Jaggi: "Sparsified SGD with memory", NeurIPS 2018): r += g; send k components of r
// chosen at random, and set them to zero in r. The vector is cut into k stretches that differ by at most one in length, and one component
// is drawn from each: so none is drawn twice, and none waits much longer than the others. The message carries the key of the draw in place
// of indices.
#include <algorithm>
#include <array>
#include <cmath>

#include "starling/base/random.h"
#include "starling/codec/codecs.h"
#include "starling/codec/largest.h"
#include "starling/codec/wire.h"
#include "starling/codec/with_residual.h"

namespace starling::codec {
namespace {

// Calls visit(number, index) for each of the k components that a key means, in ascending order.
template <class Visit>
void for_each_drawn(std::uint64_t key, std::size_t count, std::size_t k, Visit visit) {
  RandomStream stream(key, 0, "random-k");
  std::array<std::uint32_t, 1024> words{};
  const std::size_t length = k == 0 ? 0 : count / k;
  const std::size_t longer = k == 0 ? 0 : count % k;  // The first so many stretches have one more.
  std::size_t begin = 0;
  for (std::size_t i = 0; i < k; ++i) {
    if (i % words.size() == 0) stream.fill(words);
    const std::size_t size = length + (i < longer ? 1 : 0);
    visit(i, begin + (static_cast<std::uint64_t>(words[i % words.size()]) * size >> 32U));
    begin += size;
  }
}

class RandomK final : public WithResidual {
 public:
  RandomK(const CodecContext& context, double ratio)
      : WithResidual(context), ratio_(ratio), k_(components_of(ratio, count())), keys_(context.seed, context.rank, "random-k keys") {}

  std::string describe() const override { return fmt::format("randomk:{}", ratio_); }
  std::size_t largest_bytes() const override { return kHeaderBytes + sizeof(std::uint64_t) + k_ * sizeof(float); }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    add_floats(residual(), update);
    bytes.resize(largest_bytes());
    write_header(bytes.data(), header());
    keys_.seek(2 * updates_++);
    const std::uint64_t key = keys_.next_u64();
    store(bytes.data() + kHeaderBytes, key);
    std::byte* const to = bytes.data() + kHeaderBytes + sizeof(key);
    float* const kept = residual().data();
    for_each_drawn(key, count(), k_, [&](std::size_t i, std::size_t index) {
      store(to + i * sizeof(float), kept[index]);
      kept[index] = 0;
    });
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    if (auto error = check_message(bytes, header(), largest_bytes())) return error;
    const auto key = load<std::uint64_t>(bytes.data() + kHeaderBytes);
    const std::byte* const from = bytes.data() + kHeaderBytes + sizeof(key);
    std::fill(update.begin(), update.end(), 0.0F);
    bool finite = true;
    for_each_drawn(key, count(), k_, [&](std::size_t i, std::size_t index) {
      update[index] = load<float>(from + i * sizeof(float));
      finite = finite && std::isfinite(update[index]);
    });
    if (!finite) return not_finite("a value");
    return std::nullopt;
  }

  void list_state(params::StateList& state) override {
    WithResidual::list_state(state);
    state.add("updates", updates_);
  }

 private:
  Header header() const { return {.format = Format::random_k, .parameter = static_cast<std::uint32_t>(k_), .count = count()}; }

  double ratio_;
  std::size_t k_;
  RandomStream keys_;
  std::uint64_t updates_ = 0;
};

}  // namespace

std::unique_ptr<Codec> make_random_k(const CodecContext& context, double ratio) { return std::make_unique<RandomK>(context, ratio); }

}  // namespace starling::codec
