// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A program of its own, because it counts every allocation in it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "starling/codec/codec.h"
#include "starling/compute/native/native_replica.h"
#include "starling/optim/optimiser.h"
#include "unit/compute/random_networks.h"

namespace {
std::atomic<long> allocations{0};

// Not inlined, or the compiler would think that memory of new is given to free.
[[gnu::noinline]] void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void release(void* memory) { std::free(memory); }
}  // namespace

void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) { return counted(size, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return counted(size, static_cast<std::size_t>(alignment)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace starling::compute {
namespace {

TEST(NoAllocation, AStepAllocatesNothingOnceTheLargestBatchWasSeen) {
  RandomStream random(1, 0, "test");
  const data::Samples samples = random_samples(random, {1, 28, 28}, 70, 10, true);
  const std::vector<std::uint32_t> indices = all_indices(70);
  std::vector<std::int32_t> predictions(70);
  for (const char* model : {"lenet5", "mlp:784-300-10", "conv 4 3x3 pad 1, batchnorm, relu, avgpool 2, dropout 0.5, tanh, dense 10, mse",
                            "dense 40, sigmoid, batchnorm, dropout 0.1, dense 30, relu, dense 10"}) {
    for (const char* rule : {"sgd", "momentum", "nesterov", "adagrad", "adam", "lars"}) {
      // The last model goes through OpenBLAS.
      const Network network = parse_network(model, Problem::of(samples));
      const std::size_t direct = network.layers[0].outputs == 40 ? 100U : 2'000'000U;
      const std::unique_ptr<Replica> replica = native::make_native_replica(network, 1, 0, {.direct_dense_weights = direct});
      const std::unique_ptr<optim::Optimiser> optimiser =
          optim::make_optimiser({.name = rule, .weight_decay = 0.01, .clip_norm = 1}, replica->layout());
      const auto step = [&](std::size_t size, std::uint64_t number) {
        replica->compute_gradient({.samples = &samples, .indices = std::span(indices).first(size), .number = number});
        optimiser->step(replica->weights(), replica->gradient(), 0.01);
        replica->evaluate({.samples = &samples, .indices = std::span(indices).first(size), .number = number},
                          std::span(predictions).first(size));
      };
      step(70, 0);
      const long before = allocations;
      step(70, 1);
      step(33, 2);
      step(1, 3);
      EXPECT_EQ(allocations - before, 0) << model << " with " << rule;
    }
  }
}

TEST(NoAllocation, TheCounterCounts) {
  const long before = allocations;
  const std::vector<int> numbers(100);
  EXPECT_EQ(allocations - before, 1);
}

}  // namespace
}  // namespace starling::compute

namespace starling::codec {
namespace {

TEST(NoAllocation, ACodecAllocatesNothingAfterTheFirstUpdate) {
  params::Layout layout;
  layout.add("weight", {200, 100});
  layout.add("bias", {200});
  RandomStream random(2, 0, "test");
  for (const CodecDescription& description : codec_descriptions()) {
    const std::unique_ptr<Codec> codec = make_codec(description.name, {.layout = layout});
    std::vector<float> update(layout.parameter_count());
    std::vector<float> decoded(layout.parameter_count());
    std::vector<std::byte> bytes;
    bytes.reserve(codec->largest_bytes());
    codec->encode(update, bytes);
    const long before = allocations;
    for (int step = 0; step < 10; ++step) {
      for (float& value : update) value = step == 5 ? 1 : static_cast<float>(random.normal());  // Once all are equal.
      codec->encode(update, bytes);
      EXPECT_EQ(codec->decode(bytes, decoded), std::nullopt);
    }
    EXPECT_EQ(allocations - before, 0) << description.name;
  }
}

}  // namespace
}  // namespace starling::codec
