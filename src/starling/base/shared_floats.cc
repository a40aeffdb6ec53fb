// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/shared_floats.h"

#include <string>

#include "starling/base/error.h"

namespace starling {
namespace {

// Four floats at any address that suits a float. A load or store of it never tears a component on x86-64 and arm64, because
// every component is naturally aligned; volatile keeps the compiler from splitting, repeating or replacing the access.
using Lanes = float __attribute__((vector_size(16), aligned(4), may_alias));
constexpr std::size_t kLanes = sizeof(Lanes) / sizeof(float);

// The race is intended: relaxed atomic access of every component, in vector form. ThreadSanitizer knows no vector atomics and
// would report it, therefore the attribute on these two functions and nowhere else.
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

void check_lengths(std::size_t a, std::size_t b) {
  STARLING_CHECK(a == b, std::string("access to shared floats needs two ranges of one length"));
}

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

void add_shared(std::span<float> shared, std::span<const float> from) {
  check_lengths(shared.size(), from.size());
  for (std::size_t i = 0; i < from.size(); ++i) add_shared(shared[i], from[i]);
}

}  // namespace starling
