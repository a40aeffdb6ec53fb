// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/shared_floats.h"

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "starling/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace starling {
namespace {

// Four floats at any address that suits a float. A load or store of it never tears a component on x86-64 and arm64, because
// every component is naturally aligned; volatile keeps the compiler from splitting, repeating or replacing the access.
using Lanes = float __attribute__((vector_size(16), aligned(4), may_alias));
constexpr std::size_t kLanes = sizeof(Lanes) / sizeof(float);

// The race is intended: relaxed atomic access of every component, in vector form. ThreadSanitizer knows no vector atomics and
// would report it, therefore the attribute on these two functions and on add_fours() below, and nowhere else.
__attribute__((no_sanitize("thread"), noinline)) void load_lanes(const float* shared, float* to, std::size_t count) {
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    *reinterpret_cast<Lanes*>(to + i) = *reinterpret_cast<const volatile Lanes*>(shared + i);
  }
}

__attribute__((no_sanitize("thread"), noinline)) void store_lanes(float* shared, const float* from, std::size_t count) {
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    *reinterpret_cast<volatile Lanes*>(shared + i) = *reinterpret_cast<const Lanes*>(from + i);
  }
}

// For the compiler: this memory holds floats all the same.
using SharedPair = std::uint64_t __attribute__((may_alias));

void check_lengths(std::size_t a, std::size_t b) {
  STARLING_CHECK(a == b, std::string("access to shared floats needs two ranges of one length"));
}

// Two components in one exchange: what counts is the number of locked instructions, not what they carry. Additions to single components
// meanwhile are seen, because the exchange compares all eight bytes.
void add_pair(float* shared, const float* values) {
  std::atomic_ref<std::uint64_t> pair(*reinterpret_cast<SharedPair*>(shared));
  std::uint64_t before = pair.load(std::memory_order_relaxed);
  std::array<float, 2> sum{};
  do {
    sum = std::bit_cast<std::array<float, 2>>(before);
    sum[0] += values[0];
    sum[1] += values[1];
  } while (!pair.compare_exchange_weak(before, std::bit_cast<std::uint64_t>(sum), std::memory_order_relaxed));
}

#if defined(__x86_64__)

// Four components in one exchange. Every x86-64 processor since 2006 has it, but the compiler may not count on that.
bool exchanges_fours() {
  static const bool kHas = [] {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_CMPXCHG16B) != 0;
  }();
  return kHas;
}

__extension__ using Four = unsigned __int128;
using SharedFour = Four __attribute__((may_alias));

// As add_pair(), for whole fours at an address that 16 divides. The first look at the old values may be torn between components: then the
// exchange, which compares all sixteen bytes, does not happen, and tells what they are. That look is the race which ThreadSanitizer would
// report.
__attribute__((no_sanitize("thread"), noinline, target("cx16"))) void add_fours(float* shared, const float* values, std::size_t count) {
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    const Lanes added = *reinterpret_cast<const Lanes*>(values + i);
    auto* const four = reinterpret_cast<SharedFour*>(shared + i);
    Lanes before = *reinterpret_cast<const volatile Lanes*>(shared + i);
    for (;;) {
      const Lanes sum = before + added;
      const Four expected = std::bit_cast<Four>(before);
      const Four seen = __sync_val_compare_and_swap(four, expected, std::bit_cast<Four>(sum));
      if (seen == expected) break;
      before = std::bit_cast<Lanes>(seen);
    }
  }
}

#else

bool exchanges_fours() { return false; }
void add_fours(float* /*shared*/, const float* /*values*/, std::size_t /*count*/) {}

#endif

bool is_aligned(const float* at, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(at) % bytes == 0; }

}  // namespace

void load_shared(std::span<const float> shared, std::span<float> to) {
  check_lengths(shared.size(), to.size());
  load_lanes(shared.data(), to.data(), to.size());
  for (std::size_t i = to.size() - to.size() % kLanes; i < to.size(); ++i) to[i] = load_shared(shared[i]);
}

void store_shared(std::span<float> shared, std::span<const float> from) {
  check_lengths(shared.size(), from.size());
  store_lanes(shared.data(), from.data(), from.size());
  for (std::size_t i = from.size() - from.size() % kLanes; i < from.size(); ++i) store_shared(shared[i], from[i]);
}

// Singles up to an address that fits, then as many at a time as the processor can exchange, then what is left.
void add_shared(std::span<float> shared, std::span<const float> from) {
  check_lengths(shared.size(), from.size());
  const bool by_fours = exchanges_fours() && from.size() >= 2 * kLanes;
  const std::size_t alignment = by_fours ? sizeof(Lanes) : sizeof(std::uint64_t);
  std::size_t i = 0;
  for (; i < from.size() && !is_aligned(&shared[i], alignment); ++i) add_shared(shared[i], from[i]);
  if (by_fours) {
    const std::size_t count = (from.size() - i) / kLanes * kLanes;
    add_fours(&shared[i], &from[i], count);
    i += count;
  }
  for (; i + 2 <= from.size(); i += 2) add_pair(&shared[i], &from[i]);
  if (i < from.size()) add_shared(shared[i], from[i]);
}

}  // namespace starling
