// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// PowerSGD (Vogels, Karimireddy, Jaggi: "PowerSGD: practical low-rank gradient compression for distributed optimization", NeurIPS 2019,
// algorithms 1 and 2): M = g + residual of one tensor as a matrix (first extent × the rest); P = M Q, its columns made orthonormal;
// Q = Mᵀ P; send P and Q, whose product P Qᵀ is the update; the residual is M - P Qᵀ. Q is kept for the next step, a warm start of what is
// one step of power iteration. Tensors of one dimension, and those that would not get smaller, go as they are.
//
// Deviations: one sender's update is compressed on its own, without averaging P between ranks, so that it fits every strategy; columns of P
// that depend on the others are zero, and the kept Q then stays as it was, or its rank would be lost for good.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "starling/base/random.h"
#include "starling/codec/codecs.h"
#include "starling/codec/wire.h"
#include "starling/codec/with_residual.h"

// Highway compiles this file once for every instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/codec/power_sgd.cc"
#include <hwy/foreach_target.h>  // NOLINT(llvm-include-order): must come before highway.h
#include <hwy/highway.h>

#include "starling/codec/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::codec::HWY_NAMESPACE {

float dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::size_t count) {
  Vector sums[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(kTag);
  std::size_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * kLanes;
      sums[v] = hn::Add(sums[v], hn::Mul(hn::LoadU(kTag, a + at), hn::LoadU(kTag, b + at)));
    }
  }
  float sum = sum_of_group(sums);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <class D>
HWY_INLINE void add_scaled_at(D tag, float factor, const float* HWY_RESTRICT from, float* HWY_RESTRICT to) {
  hn::StoreU(hn::Add(hn::LoadU(tag, to), hn::Mul(hn::Set(tag, factor), hn::LoadU(tag, from))), tag, to);
}

// to += factor × from.
void add_scaled(float factor, const float* HWY_RESTRICT from, float* HWY_RESTRICT to, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) add_scaled_at(kTag, factor, from + i, to + i);
  for (; i < count; ++i) add_scaled_at(kOne, factor, from + i, to + i);
}

// The components from `i` on of the combination of the rows of q (`stride` apart) with the given factors, added in their order.
template <class D>
HWY_INLINE hn::Vec<D> combination_at(D tag, const float* factors, const float* q, std::size_t rank, std::size_t stride, std::size_t i) {
  auto sum = hn::Mul(hn::Set(tag, factors[0]), hn::LoadU(tag, q + i));
  for (std::size_t j = 1; j < rank; ++j) sum = hn::Add(sum, hn::Mul(hn::Set(tag, factors[j]), hn::LoadU(tag, q + j * stride + i)));
  return sum;
}

// One row of P Qᵀ.
void put_row(const float* factors, const float* q, std::size_t rank, std::size_t columns, float* HWY_RESTRICT row) {
  std::size_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) hn::StoreU(combination_at(kTag, factors, q, rank, columns, i), kTag, row + i);
  for (; i < columns; ++i) hn::StoreU(combination_at(kOne, factors, q, rank, columns, i), kOne, row + i);
}

void subtract_row(const float* factors, const float* q, std::size_t rank, std::size_t columns, float* HWY_RESTRICT row) {
  std::size_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    hn::StoreU(hn::Sub(hn::LoadU(kTag, row + i), combination_at(kTag, factors, q, rank, columns, i)), kTag, row + i);
  }
  for (; i < columns; ++i) row[i] -= hn::GetLane(combination_at(kOne, factors, q, rank, columns, i));
}

}  // namespace starling::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::codec {
namespace {

HWY_EXPORT(dot);
HWY_EXPORT(add_scaled);
HWY_EXPORT(put_row);
HWY_EXPORT(subtract_row);

// A stretch of the flat vector: a matrix if rank > 0, else floats that go as they are.
struct Part {
  std::size_t offset = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;  // Without rank: of the one row.
  std::size_t rank = 0;
  std::size_t factor_at = 0;  // Where its Q is kept: rank rows of `columns` floats.

  std::size_t sent_floats() const { return rank == 0 ? columns : rank * (rows + columns); }
};

std::vector<Part> parts_of(const params::Layout& layout, std::size_t rank) {
  std::vector<Part> parts;
  std::size_t factor_at = 0;
  for (const params::Slice& slice : layout.slices()) {
    if (slice.kind != params::SliceKind::parameter) continue;
    Part part{.offset = slice.offset, .rows = 1, .columns = slice.size, .factor_at = factor_at};
    if (slice.shape.size() >= 2) {
      const auto rows = static_cast<std::size_t>(slice.shape[0]);
      const std::size_t columns = slice.size / rows;
      const std::size_t used = std::min({rank, rows, columns});
      if (used * (rows + columns) < slice.size) part = {slice.offset, rows, columns, used, factor_at};
    }
    factor_at += part.rank * part.columns;
    parts.push_back(part);
  }
  return parts;
}

// Makes the columns of P orthonormal, one after the other; zero where a column depends on those before. P has `rank` factors to a row.
void make_orthonormal(std::span<float> p, std::size_t rows, std::size_t rank) {
  const auto product = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < rows; ++i) sum += static_cast<double>(p[i * rank + a]) * static_cast<double>(p[i * rank + b]);
    return sum;
  };
  for (std::size_t j = 0; j < rank; ++j) {
    const double before = product(j, j);
    for (std::size_t other = 0; other < j; ++other) {
      const auto common = static_cast<float>(product(other, j));
      for (std::size_t i = 0; i < rows; ++i) p[i * rank + j] -= common * p[i * rank + other];
    }
    const double after = product(j, j);
    constexpr double kDependent = 1e-10;  // Of squares: what is left is the rounding of floats.
    const double scale = after > kDependent * before && std::isfinite(after) ? 1 / std::sqrt(after) : 0;
    for (std::size_t i = 0; i < rows; ++i) p[i * rank + j] = static_cast<float>(static_cast<double>(p[i * rank + j]) * scale);
  }
}

class PowerSgd final : public WithResidual {
 public:
  PowerSgd(const CodecContext& context, std::size_t rank) : WithResidual(context), rank_(rank), parts_(parts_of(context.layout, rank)) {
    std::size_t factor_floats = 0;
    for (const Part& part : parts_) {
      sent_floats_ += part.sent_floats();
      factor_floats += part.rank * part.columns;
    }
    factors_.grow(factor_floats);
    sent_.grow(sent_floats_);
    RandomStream stream(context.seed, context.rank, "powersgd");
    for (float& factor : factors_.span()) factor = static_cast<float>(stream.normal());
  }

  std::string describe() const override { return fmt::format("powersgd:{}", rank_); }
  std::size_t largest_bytes() const override { return kHeaderBytes + sent_floats_ * sizeof(float); }

  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    check_size(update.size());
    add_floats(residual(), update);
    float* to = sent_.data();
    for (const Part& part : parts_) {
      float* const values = residual().data() + part.offset;
      if (part.rank == 0) {
        std::memcpy(to, values, part.columns * sizeof(float));
        std::memset(values, 0, part.columns * sizeof(float));
      } else {
        compress(part, values, to);
      }
      to += part.sent_floats();
    }
    bytes.resize(largest_bytes());
    write_header(bytes.data(), header());
    if (sent_floats_ > 0) std::memcpy(bytes.data() + kHeaderBytes, sent_.data(), sent_floats_ * sizeof(float));
  }

  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    check_size(update.size());
    if (auto error = check_message(bytes, header(), largest_bytes())) return error;
    if (sent_floats_ > 0) std::memcpy(sent_.data(), bytes.data() + kHeaderBytes, sent_floats_ * sizeof(float));
    const float* from = sent_.data();
    for (const Part& part : parts_) {
      float* const values = update.data() + part.offset;
      if (part.rank == 0) {
        std::memcpy(values, from, part.columns * sizeof(float));
      } else {
        const float* const q = from + part.rows * part.rank;
        for (std::size_t i = 0; i < part.rows; ++i) {
          HWY_DYNAMIC_DISPATCH(put_row)(from + i * part.rank, q, part.rank, part.columns, values + i * part.columns);
        }
      }
      from += part.sent_floats();
    }
    // The result, and not what was sent: products of finite factors may be infinite.
    for (const float value : update) {
      if (!std::isfinite(value)) return not_finite("a value, or gives one,");
    }
    return std::nullopt;
  }

  void list_state(params::StateList& state) override {
    WithResidual::list_state(state);
    state.add("factors", factors_.span());
  }

 private:
  Header header() const { return {.format = Format::power_sgd, .parameter = static_cast<std::uint32_t>(rank_), .count = count()}; }

  // Writes P and Q to `to`, and leaves M - P Qᵀ.
  void compress(const Part& part, float* matrix, float* to) {
    float* const p = to;
    float* const q = to + part.rows * part.rank;
    float* const kept = factors_.data() + part.factor_at;
    for (std::size_t i = 0; i < part.rows; ++i) {
      for (std::size_t j = 0; j < part.rank; ++j) {
        p[i * part.rank + j] = HWY_DYNAMIC_DISPATCH(dot)(matrix + i * part.columns, kept + j * part.columns, part.columns);
      }
    }
    make_orthonormal({p, part.rows * part.rank}, part.rows, part.rank);
    std::memset(q, 0, part.rank * part.columns * sizeof(float));
    for (std::size_t i = 0; i < part.rows; ++i) {
      for (std::size_t j = 0; j < part.rank; ++j) {
        HWY_DYNAMIC_DISPATCH(add_scaled)(p[i * part.rank + j], matrix + i * part.columns, q + j * part.columns, part.columns);
      }
    }
    for (std::size_t i = 0; i < part.rows; ++i) {
      HWY_DYNAMIC_DISPATCH(subtract_row)(p + i * part.rank, q, part.rank, part.columns, matrix + i * part.columns);
    }
    for (std::size_t j = 0; j < part.rank; ++j) keep({q + j * part.columns, part.columns}, {kept + j * part.columns, part.columns});
  }

  // Of length 1, so that it neither grows nor vanishes from step to step with the gradients; only its direction counts.
  static void keep(std::span<const float> q, std::span<float> kept) {
    double squares = 0;
    for (const float value : q) squares += static_cast<double>(value) * static_cast<double>(value);
    if (!(squares > 0) || !std::isfinite(squares)) return;
    const double scale = 1 / std::sqrt(squares);
    for (std::size_t i = 0; i < q.size(); ++i) kept[i] = static_cast<float>(static_cast<double>(q[i]) * scale);
  }

  std::size_t rank_;
  std::vector<Part> parts_;
  std::size_t sent_floats_ = 0;
  AlignedFloats factors_;
  AlignedFloats sent_;
};

}  // namespace

std::unique_ptr<Codec> make_power_sgd(const CodecContext& context, std::size_t rank) { return std::make_unique<PowerSgd>(context, rank); }

}  // namespace starling::codec
#endif
