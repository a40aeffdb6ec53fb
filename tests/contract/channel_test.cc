// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The tensor channel, on every fabric.
#include "starling/tensor/channel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "contract/fabrics.h"
#include "starling/base/random.h"
#include "starling/collective/collective.h"

namespace starling::tensor {
namespace {

using namespace std::chrono_literals;
using fabric::Deadline;
using fabric::Endpoint;
using fabric::Group;
using fabric::Payload;
using fabric::Rank;
using fabric::test_name;

constexpr fabric::Tag kTag = 5;
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8};

class ChannelTest : public fabric::FabricTest {
 protected:
  // Runs on every rank, with the next and the one before; nobody leaves before all are done.
  using RingBody = std::function<Status(Endpoint&, Rank right, Rank left)>;
  void run_ring(const RingBody& body) {
    run([&](Endpoint& endpoint) -> Status {
      const Rank right = (endpoint.rank() + 1) % endpoint.size();
      const Rank left = (endpoint.rank() + endpoint.size() - 1) % endpoint.size();
      STARLING_TRY(body(endpoint, right, left));
      return collective::barrier(endpoint, Group::world(endpoint.size()));
    });
  }
};
INSTANTIATE_ON_ALL_FABRICS(ChannelTest);

// Bytes that are a function of their position and of who made them.
std::vector<std::byte> pattern(std::size_t size, Rank rank) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(rank) * 31 + 1);
  return bytes;
}

params::Stamp stamp_of(Rank rank) {
  params::Stamp stamp{.id = {.origin = rank, .number = 42}, .version = 1ULL << 50, .contents = params::VersionVector(3), .value = -0.5};
  stamp.contents[0] = params::NumberSet(9);
  stamp.contents[2].insert(3);
  return stamp;
}

enum class Way { blocking, any, filter, poll, pending, pending_blocking };
constexpr Way kWays[] = {Way::blocking, Way::any, Way::filter, Way::poll, Way::pending, Way::pending_blocking};

// Looks again and again, but leaves the core to others in between.
void wait_until(Endpoint& endpoint, FunctionRef<bool()> condition) {
  while (!condition()) endpoint.sleep(20us);
}

Result<Incoming> receive(Endpoint& endpoint, Channel& channel, Rank from, Way way) {
  if (way == Way::any) return channel.receive(fabric::kAnyRank);
  if (way == Way::filter) return channel.receive(fabric::Filter{.source = from, .departures_seen = 1000});
  if (way == Way::poll) {
    std::optional<Result<Incoming>> incoming;
    wait_until(endpoint, [&] { return (incoming = channel.poll(from)).has_value(); });
    return std::move(*incoming);
  }
  if (way == Way::blocking) return channel.receive(from);
  Pending pending = channel.begin_receive(from);
  if (way == Way::pending) wait_until(endpoint, [&] { return pending.ready(); });
  return pending.wait();
}

TEST_P(ChannelTest, EveryTypeAndShapeArrivesEveryWay) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    for (const DType dtype : kTypes) {
      for (const Extents& shape : {Extents{}, Extents{0}, Extents{1}, Extents{1000}, Extents{3, 0, 2}, Extents{2, 3, 4, 5}}) {
        for (const Way way : kWays) {
          const std::size_t size_bytes = element_count(shape) * size_of(dtype);
          const std::vector<std::byte> mine = pattern(size_bytes, endpoint.rank());
          STARLING_TRY(channel.send(right, TensorView{.dtype = dtype, .shape = shape, .bytes = mine}, stamp_of(endpoint.rank())));
          Result<Incoming> incoming = receive(endpoint, channel, left, way);
          if (!incoming) return incoming.failure();
          EXPECT_EQ(incoming->source, left);
          EXPECT_EQ(incoming->stamp, stamp_of(left));
          EXPECT_EQ(incoming->tensor.dtype(), dtype);
          EXPECT_EQ(incoming->tensor.shape(), shape);
          EXPECT_TRUE(std::ranges::equal(incoming->tensor.bytes(), pattern(size_bytes, left)));
          EXPECT_FALSE(incoming->sparse.has_value());
        }
      }
    }
    return {};
  });
}

TEST_P(ChannelTest, SparseRowsOfEveryTypeArriveEveryWay) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    for (const DType dtype : kTypes) {
      for (const Extents& shape : {Extents{10}, Extents{10, 3}, Extents{10, 0}, Extents{1LL << 40, 2, 2}}) {
        for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{}, {0}, {9}, {0, 4, 5, 9}}) {
          for (const Way way : kWays) {
            Extents value_shape = shape;
            value_shape[0] = static_cast<std::int64_t>(rows.size());
            const std::size_t size_bytes = element_count(value_shape) * size_of(dtype);
            const std::vector<std::byte> mine = pattern(size_bytes, endpoint.rank());
            STARLING_TRY(channel.send(right, SparseRowsView{.dtype = dtype, .shape = shape, .rows = rows, .values = mine},
                                      stamp_of(endpoint.rank())));
            Result<Incoming> incoming = receive(endpoint, channel, left, way);
            if (!incoming) return incoming.failure();
            EXPECT_EQ(incoming->stamp, stamp_of(left));
            EXPECT_EQ(incoming->tensor.size(), 0U);
            EXPECT_TRUE(incoming->sparse.has_value());
            if (!incoming->sparse) return {};
            EXPECT_EQ(incoming->sparse->dtype, dtype);
            EXPECT_EQ(incoming->sparse->shape, shape);
            EXPECT_EQ(incoming->sparse->rows, rows);
            EXPECT_EQ(incoming->sparse->values.dtype(), dtype);
            EXPECT_EQ(incoming->sparse->values.shape(), value_shape);
            EXPECT_TRUE(std::ranges::equal(incoming->sparse->values.bytes(), pattern(size_bytes, left)));
          }
        }
      }
    }
    return {};
  });
}

TEST_P(ChannelTest, ReceivesIntoMemoryOfTheCallers) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    for (const DType dtype : kTypes) {
      const Extents shape{4, 5};
      const std::size_t row_bytes = 5 * size_of(dtype);
      const std::vector<std::byte> mine = pattern(4 * row_bytes, endpoint.rank());
      std::vector<std::byte> memory(4 * row_bytes);
      const MutableTensorView to{.dtype = dtype, .shape = shape, .bytes = memory};
      STARLING_TRY(channel.send(right, TensorView{.dtype = dtype, .shape = shape, .bytes = mine}, stamp_of(endpoint.rank())));
      Result<params::Stamp> stamp = channel.receive_into(left, to);
      if (!stamp) return stamp.failure();
      EXPECT_EQ(*stamp, stamp_of(left));
      EXPECT_EQ(memory, pattern(4 * row_bytes, left));

      // Rows 1 and 3; 0 and 2 stay as they are.
      const std::vector<std::int64_t> rows{1, 3};
      const auto values = std::span(mine).first(2 * row_bytes);
      STARLING_TRY(channel.send(right, SparseRowsView{.dtype = dtype, .shape = shape, .rows = rows, .values = values}));
      std::ranges::fill(memory, std::byte{0xee});
      Result<params::Stamp> none = channel.receive_into(left, to);
      if (!none) return none.failure();
      EXPECT_EQ(*none, params::Stamp{});
      const std::vector<std::byte> theirs = pattern(2 * row_bytes, left);
      for (std::size_t i = 0; i < 4 * row_bytes; ++i) {
        const std::size_t row = i / row_bytes;
        const std::byte expected = row % 2 == 0 ? std::byte{0xee} : theirs[row / 2 * row_bytes + i % row_bytes];
        EXPECT_EQ(memory[i], expected) << "byte " << i << " of " << to_string(dtype);
      }

      STARLING_TRY(channel.send(right, SparseRowsView{.dtype = dtype, .shape = shape}));  // No rows at all.
      const std::vector<std::byte> before = memory;
      Result<params::Stamp> empty = channel.receive_into(left, to);
      if (!empty) return empty.failure();
      EXPECT_EQ(memory, before);
    }
    return {};
  });
}

// The fabrics inside one process give the receiver the sender's memory.
TEST_P(ChannelTest, TensorsAndLentMemoryAreNotCopied) {
  if (!one_process()) return;
  std::vector<std::vector<float>> lent(static_cast<std::size_t>(ranks()), std::vector<float>(1000, 1));
  std::vector<const float*> sent(static_cast<std::size_t>(ranks()));
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    const auto me = static_cast<std::size_t>(endpoint.rank());
    Tensor tensor = Tensor::allocate(DType::f32, {10, 100});
    std::ranges::fill(tensor.writable_as<float>(), 2.F);
    sent[me] = tensor.as<float>().data();
    STARLING_TRY(channel.send(right, std::move(tensor), stamp_of(endpoint.rank())));
    Result<Incoming> incoming = channel.receive(left);
    if (!incoming) return incoming.failure();
    EXPECT_EQ(incoming->stamp, stamp_of(left));
    EXPECT_EQ(incoming->tensor.as<float>().data(), sent[static_cast<std::size_t>(left)]);
    // Nobody else has it, so that it is written in place, and goes on as it is.
    incoming->tensor.writable_as<float>()[0] = 3;
    EXPECT_EQ(incoming->tensor.as<float>().data(), sent[static_cast<std::size_t>(left)]);

    const std::vector<float>& theirs = lent[static_cast<std::size_t>(left)];
    STARLING_TRY(channel.lend(right, TensorView::of(std::span<const float>(lent[me]), {1000, 1}), stamp_of(endpoint.rank())));
    Result<Incoming> borrowed = channel.receive(left);
    if (!borrowed) return borrowed.failure();
    EXPECT_EQ(borrowed->stamp, stamp_of(left));
    EXPECT_EQ(borrowed->tensor.shape(), (Extents{1000, 1}));
    EXPECT_EQ(borrowed->tensor.as<float>().data(), theirs.data());
    borrowed->tensor.writable_as<float>()[0] = 9;  // A copy of its own: what is lent is not given.
    EXPECT_NE(borrowed->tensor.as<float>().data(), theirs.data());
    EXPECT_EQ(borrowed->tensor.as<float>()[999], 1);
    return {};
  });
  for (const std::vector<float>& memory : lent) EXPECT_EQ(memory[0], 1);
}

TEST_P(ChannelTest, OneTensorGoesToManyEachWithItsStamp) {
  if (!one_process()) return;
  const float* memory = nullptr;
  run([&](Endpoint& endpoint) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    if (endpoint.rank() == 0) {
      const std::vector<float> values{1, 2, 3};
      const Tensor tensor = Tensor::copy_of(TensorView::of(std::span(values)));
      memory = tensor.as<float>().data();
      for (Rank to = 0; to < endpoint.size(); ++to) STARLING_TRY(channel.send(to, tensor.share(), stamp_of(to)));
    }
    Result<Incoming> incoming = channel.receive(0);
    if (!incoming) return incoming.failure();
    EXPECT_EQ(incoming->stamp, stamp_of(endpoint.rank()));
    EXPECT_EQ(incoming->tensor.as<float>().data(), memory);
    EXPECT_EQ(incoming->tensor.as<float>()[2], 3);
    return {};
  });
}

TEST_P(ChannelTest, AdoptedMemoryIsReleasedByWhoeverIsLast) {
  if (!one_process()) return;
  std::atomic<int> released{0};
  const std::vector<std::int64_t> values{1, 2, 3};
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    STARLING_TRY(channel.send(right, Tensor::adopt(TensorView::of(std::span(values)), [&] { ++released; })));
    Result<Incoming> incoming = channel.receive(left);
    if (!incoming) return incoming.failure();
    EXPECT_EQ(incoming->tensor.as<std::int64_t>().data(), values.data());
    return {};
  });
  EXPECT_EQ(released, ranks());
}

// What failed, if it did.
template <class T>
std::string detail(const Result<T>& result) {
  if (result.ok()) return "it succeeded";
  EXPECT_EQ(result.failure().kind, FailureKind::mismatch);
  return result.failure().detail;
}

TEST_P(ChannelTest, AMismatchNamesBothSides) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    const int me = endpoint.rank();
    const std::vector<float> values(100);
    std::vector<double> doubles(100);
    std::vector<float> memory(100, 4);
    const auto into = MutableTensorView::of(std::span(memory), {50, 2});

    STARLING_TRY(channel.send(right, TensorView::of(std::span(values))));
    const Result<params::Stamp> other_type = channel.receive_into(left, MutableTensorView::of(std::span(doubles)));
    EXPECT_EQ(detail(other_type), "rank " + std::to_string(left) + " sent f32 [100], rank " + std::to_string(me) + " expected f64 [100]");
    if (!other_type.ok()) {
      EXPECT_EQ(other_type.failure().rank, me);
      EXPECT_EQ(other_type.failure().peer, left);
      EXPECT_NE(other_type.failure().message().find("tag 5 from rank " + std::to_string(left)), std::string::npos);
    }

    STARLING_TRY(channel.send(right, TensorView::of(std::span(values), {2, 50})));
    EXPECT_EQ(detail(channel.receive_into(left, into)),
              "rank " + std::to_string(left) + " sent f32 [2, 50], rank " + std::to_string(me) + " expected f32 [50, 2]");

    const std::vector<std::int64_t> rows{60};
    STARLING_TRY(channel.send(right, SparseRowsView{.dtype = DType::f32, .shape = {70}, .rows = rows, .values = into.bytes.first(4)}));
    EXPECT_EQ(detail(channel.receive_into(left, into)),
              "rank " + std::to_string(left) + " sent 1 rows of f32 [70], rank " + std::to_string(me) + " expected f32 [50, 2]");
    EXPECT_EQ(std::ranges::count(memory, 4.F), 100);

    // The channel goes on.
    STARLING_TRY(channel.send(right, TensorView::of(std::span(values), {50, 2})));
    const Result<params::Stamp> good = channel.receive_into(left, into);
    return good ? Status() : Status(good.failure());
  });
}

TEST_P(ChannelTest, BytesThatAreNoTensorAreAMismatch) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    const std::string begin = "rank " + std::to_string(left) + " sent 8 bytes that are no tensor (it has no head), rank " +
                              std::to_string(endpoint.rank()) + " expected one";
    for (const Way way : {Way::blocking, Way::filter, Way::poll, Way::pending, Way::pending_blocking}) {
      STARLING_TRY(endpoint.send(right, kTag, Payload::allocate(8)));
      EXPECT_EQ(detail(receive(endpoint, channel, left, way)), begin);
    }
    std::vector<float> memory(2);
    STARLING_TRY(endpoint.send(right, kTag, Payload::allocate(8)));
    EXPECT_EQ(detail(channel.receive_into(left, MutableTensorView::of(std::span(memory)))), begin);
    return {};
  });
}

// Random damage to heads and payloads: a mismatch, or a tensor that keeps its promises. Never anything else.
TEST_P(ChannelTest, HostileBytesGiveATensorOrAMismatch) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fabric::FabricOptions seeded = options();
    seeded.seed = seed;
    run(seeded, [&](Endpoint& endpoint) -> Status {
      Channel channel(endpoint, {.tag = kTag});
      RandomStream random = endpoint.random("damage");
      std::vector<float> memory(12);
      for (int round = 0; round < 100; ++round) {
        std::vector<std::uint64_t> head;
        const bool sparse = random.below(2) == 0;
        const std::vector<std::int64_t> rows{0, 2};
        write_head(sparse ? Form::sparse : Form::dense, DType::f32, {4, 3}, sparse ? std::span(rows) : std::span<const std::int64_t>(),
                   stamp_of(0), head);
        for (std::uint64_t changes = random.below(3); changes > 0; --changes) {
          std::uint64_t& word = head[random.below(head.size())];
          word = random.below(3) == 0 ? random.next_u64() : random.below(2) == 0 ? random.below(8) : word ^ 1ULL << random.below(64);
        }
        auto bytes = std::as_bytes(std::span(head));
        if (random.below(4) == 0) bytes = bytes.first(random.below(bytes.size() + 1));
        for (const bool into : {false, true}) {
          Payload payload = Payload::copy_of(std::span<const std::byte>(pattern(random.below(3) == 0 ? 20 : sparse ? 24 : 48, 0)));
          payload.set_head(bytes);
          STARLING_TRY(endpoint.send(endpoint.rank(), kTag, std::move(payload)));
          if (into) {
            const Result<params::Stamp> stamp = channel.receive_into(endpoint.rank(), MutableTensorView::of(std::span(memory), {4, 3}));
            EXPECT_TRUE(stamp.ok() || stamp.failure().kind == FailureKind::mismatch);
            continue;
          }
          Result<Incoming> incoming = channel.receive(endpoint.rank());
          EXPECT_TRUE(incoming.ok() || incoming.failure().kind == FailureKind::mismatch);
          if (!incoming) continue;
          const Tensor& values = incoming->sparse ? incoming->sparse->values : incoming->tensor;
          EXPECT_EQ(byte_count(values.dtype(), values.shape()), values.bytes().size());
        }
      }
      return {};
    });
  }
}

TEST_P(ChannelTest, WhatIsNoTensorOfTheSendersIsABrokenInvariant) {
  run([&](Endpoint& endpoint) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    const std::vector<float> values(6);
    const auto bytes = std::as_bytes(std::span(values));
    const auto refused = [&](const auto& tensor) { EXPECT_THROW((void)channel.send(endpoint.rank(), tensor), BrokenInvariant); };
    refused(TensorView{.dtype = DType::f32, .shape = {7}, .bytes = bytes});
    refused(TensorView{.dtype = DType::f32, .shape = {-6}, .bytes = bytes});
    const std::vector<std::int64_t> rows{0, 1};
    const std::vector<std::int64_t> descending{1, 0};
    refused(SparseRowsView{.dtype = DType::f32, .shape = {2, 2}, .rows = rows, .values = bytes});
    refused(SparseRowsView{.dtype = DType::f32, .shape = {1, 3}, .rows = rows, .values = bytes});
    refused(SparseRowsView{.dtype = DType::f32, .shape = {3, 3}, .rows = descending, .values = bytes});
    refused(SparseRowsView{.dtype = DType::f32, .shape = {}, .values = {}});
    EXPECT_EQ(endpoint.traffic().messages_sent, 0U);
    return {};
  });
}

// Keeps the upper half of each float.
class HalvingCodec final : public codec::Codec {
 public:
  explicit HalvingCodec(std::size_t values) : values_(values) {}
  std::string describe() const override { return "halving"; }
  std::size_t largest_bytes() const override { return 2 * values_; }
  void encode(std::span<const float> update, std::vector<std::byte>& bytes) override {
    STARLING_CHECK(update.size() == values_, std::string("another size"));
    bytes.resize(2 * values_);
    for (std::size_t i = 0; i < values_; ++i) std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const std::byte*>(&update[i]) + 2, 2);
  }
  std::optional<std::string> decode(std::span<const std::byte> bytes, std::span<float> update) override {
    if (bytes.size() != 2 * update.size()) return "it has " + std::to_string(bytes.size()) + " bytes";
    std::ranges::fill(update, 0.F);
    for (std::size_t i = 0; i < update.size(); ++i) std::memcpy(reinterpret_cast<std::byte*>(&update[i]) + 2, bytes.data() + 2 * i, 2);
    return std::nullopt;
  }

 private:
  std::size_t values_;
};

TEST_P(ChannelTest, DenseFloatsGoThroughTheCodec) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    HalvingCodec codec(1000);
    Channel channel(endpoint, {.tag = kTag, .codec = &codec, .codec_values = 1000});
    std::vector<float> values(1000);
    std::iota(values.begin(), values.end(), 0.F);
    values[3] = 1.00001F;
    const TensorView view = TensorView::of(std::span<const float>(values), {10, 100});
    std::vector<float> expected = values;
    for (float& value : expected) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      bits &= 0xffff0000;
      std::memcpy(&value, &bits, 4);
    }
    EXPECT_NE(expected, values);

    STARLING_TRY(channel.send(right, view, stamp_of(endpoint.rank())));
    EXPECT_LT(endpoint.traffic().bytes_sent, 2200U);
    STARLING_TRY(channel.send(right, Tensor::copy_of(view)));
    STARLING_TRY(channel.lend(right, view));
    for (int i = 0; i < 3; ++i) {
      Result<Incoming> incoming = channel.receive(left);
      if (!incoming) return incoming.failure();
      EXPECT_EQ(incoming->tensor.shape(), view.shape);
      EXPECT_TRUE(std::ranges::equal(incoming->tensor.as<float>(), expected));
      EXPECT_EQ(incoming->stamp, i == 0 ? stamp_of(left) : params::Stamp{});
    }
    STARLING_TRY(channel.send(right, view));
    std::vector<float> memory(1000);
    Result<params::Stamp> stamp = channel.receive_into(left, MutableTensorView::of(std::span(memory), {10, 100}));
    if (!stamp) return stamp.failure();
    EXPECT_EQ(memory, expected);

    // Everything else travels as it is.
    const std::vector<double> doubles(1000, 1.00001);
    STARLING_TRY(channel.send(right, TensorView::of(std::span(doubles))));
    STARLING_TRY(channel.send(right, TensorView::of(std::span<const float>(values).first(5))));
    const std::vector<std::int64_t> rows{3};
    STARLING_TRY(channel.send(right, SparseRowsView{.shape = {1000}, .rows = rows, .values = view.bytes.subspan(12, 4)}));
    Result<Incoming> other_type = channel.receive(left);
    if (!other_type) return other_type.failure();
    EXPECT_TRUE(std::ranges::equal(other_type->tensor.as<double>(), doubles));
    Result<Incoming> other_size = channel.receive(left);
    if (!other_size) return other_size.failure();
    EXPECT_EQ(other_size->tensor.as<float>()[3], 1.00001F);
    Result<Incoming> sparse = channel.receive(left);
    if (!sparse) return sparse.failure();
    EXPECT_EQ(sparse->sparse->values.as<float>()[0], 1.00001F);
    return {};
  });
}

TEST_P(ChannelTest, ACodecOnOneSideOnlyIsAMismatchWhereItMatters) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    HalvingCodec codec(10);
    HalvingCodec larger(20);
    Channel encoding(endpoint, {.tag = kTag, .codec = &codec});
    Channel other_size(endpoint, {.tag = kTag, .codec = &larger, .codec_values = 20});
    Channel plain(endpoint, {.tag = kTag});
    const std::string sent = "rank " + std::to_string(left) + " sent f32 [10] through a codec, rank " + std::to_string(endpoint.rank());
    const std::vector<float> values(10, 1);
    const auto send = [&] { return encoding.send(right, TensorView::of(std::span(values))); };

    STARLING_TRY(send());
    EXPECT_EQ(detail(plain.receive(left)), sent + " has no codec on this channel");
    STARLING_TRY(send());
    std::vector<float> memory(10, 4);
    EXPECT_EQ(detail(plain.receive_into(left, MutableTensorView::of(std::span(memory)))), sent + " has no codec on this channel");
    EXPECT_EQ(std::ranges::count(memory, 4.F), 10);
    STARLING_TRY(send());
    EXPECT_EQ(detail(other_size.receive(left)), sent + " expected 20 values through halving");

    // Plain values need no codec.
    STARLING_TRY(plain.send(right, TensorView::of(std::span(values))));
    Result<Incoming> incoming = encoding.receive(left);
    if (!incoming) return incoming.failure();
    EXPECT_TRUE(std::ranges::equal(incoming->tensor.as<float>(), values));
    return {};
  });
}

TEST_P(ChannelTest, WhatTheCodecCannotDecodeIsAMismatch) {
  run([&](Endpoint& endpoint) -> Status {
    HalvingCodec codec(10);
    Channel channel(endpoint, {.tag = kTag, .codec = &codec});
    const std::string me = std::to_string(endpoint.rank());
    const auto send = [&](std::int64_t values) {
      std::vector<std::uint64_t> head;
      write_head(Form::encoded, DType::f32, {values}, {}, {}, head);
      Payload payload = Payload::allocate(7);
      payload.set_head(std::as_bytes(std::span(head)));
      return endpoint.send(endpoint.rank(), kTag, std::move(payload));
    };
    const std::string expected =
        "rank " + me + " sent f32 [10] through a codec, which the codec halving of rank " + me + " cannot decode: it has 7 bytes";
    STARLING_TRY(send(10));
    EXPECT_EQ(detail(channel.receive(endpoint.rank())), expected);
    STARLING_TRY(send(10));
    std::vector<float> memory(10);
    EXPECT_EQ(detail(channel.receive_into(endpoint.rank(), MutableTensorView::of(std::span(memory)))), expected);
    return {};
  });
}

TEST_P(ChannelTest, ChannelsAreToldApartByTheirTags) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel one(endpoint, {.tag = 1});
    Channel two(endpoint, {.tag = 2});
    for (int value = 0; value < 3; ++value) {
      const std::int32_t number[] = {value, -value};
      STARLING_TRY(one.send(right, TensorView::of(std::span(number).first(1))));
      STARLING_TRY(two.send(right, TensorView::of(std::span(number).last(1))));
    }
    for (int value = 0; value < 3; ++value) {
      Result<Incoming> second = two.receive(left);
      if (!second) return second.failure();
      EXPECT_EQ(second->tensor.as<std::int32_t>()[0], -value);
    }
    EXPECT_FALSE(two.poll(left).has_value());
    for (int value = 0; value < 3; ++value) {
      Result<Incoming> first = one.receive(left);
      if (!first) return first.failure();
      EXPECT_EQ(first->tensor.as<std::int32_t>()[0], value);
    }
    return {};
  });
}

TEST_P(ChannelTest, APendingReceiveLetsTheCallerGoOn) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    Pending first = channel.begin_receive(left);
    Pending second = channel.begin_receive(left);
    EXPECT_FALSE(first.ready());
    STARLING_TRY(collective::barrier(endpoint, Group::world(endpoint.size())));
    for (int value = 1; value <= 2; ++value) {
      STARLING_TRY(channel.send(right, TensorView::of(std::span<const std::int32_t>(&value, 1))));
    }
    wait_until(endpoint, [&] { return first.ready(); });
    EXPECT_TRUE(first.ready());  // Still.
    Result<Incoming> later = second.wait();
    Result<Incoming> earlier = first.wait();
    if (!later || !earlier) return (later ? earlier : later).failure();
    EXPECT_EQ(earlier->tensor.as<std::int32_t>()[0], 1);
    EXPECT_EQ(later->tensor.as<std::int32_t>()[0], 2);
    EXPECT_FALSE(first.ready());
    EXPECT_THROW((void)first.wait(), BrokenInvariant);
    return {};
  });
}

TEST_P(ChannelTest, FailuresOfTheEndpointAreThoseOfTheChannel) {
  run_ring([&](Endpoint& endpoint, Rank /*right*/, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    EXPECT_FALSE(channel.poll(left).has_value());
    const Result<Incoming> late = channel.receive(left, Deadline::after(5ms));
    EXPECT_FALSE(late.ok());
    if (!late.ok()) {
      EXPECT_EQ(late.failure().kind, FailureKind::timeout);
      EXPECT_EQ(late.failure().awaited, "a message with tag 5 from rank " + std::to_string(left));
    }
    return {};
  });
}

TEST_P(ChannelTest, AWaitForAnybodyCanHearOfDepartures) {
  if (ranks() == 1) return;
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() != 0) return {};
    Channel channel(endpoint, {.tag = kTag});
    const Result<Incoming> incoming = channel.receive(fabric::Filter{.departures_seen = 0});
    EXPECT_FALSE(incoming.ok());
    if (!incoming.ok()) {
      EXPECT_EQ(incoming.failure().kind, FailureKind::peer_lost);
    }
    return {};
  });
}

TEST_P(ChannelTest, BytesSentAreTheValuesAndASmallHead) {
  run_ring([&](Endpoint& endpoint, Rank right, Rank left) -> Status {
    Channel channel(endpoint, {.tag = kTag});
    const std::vector<float> values(1000);
    STARLING_TRY(channel.send(right, TensorView::of(std::span(values))));
    EXPECT_EQ(endpoint.traffic().bytes_sent, 4000U + 64);
    params::Stamp stamp{.contents = params::VersionVector(8)};
    STARLING_TRY(channel.send(right, TensorView::of(std::span(values)), stamp));
    EXPECT_EQ(endpoint.traffic().bytes_sent, 2 * (4000U + 64) + 8 * 8);
    for (int i = 0; i < 2; ++i) {
      const Result<Incoming> incoming = channel.receive(left);
      if (!incoming) return incoming.failure();
    }
    return {};
  });
}

}  // namespace
}  // namespace starling::tensor
