// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Floats that several threads read and write at the same time without a lock: the one place in Starling where that is allowed.
//
// Every component is accessed atomically and with relaxed order: a reader sees for each component some value that was written
// there, but no particular combination of components. The single-component functions are std::atomic_ref; the range functions
// are their vectorised forms.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace starling {

static_assert(std::atomic_ref<float>::is_always_lock_free);

inline float load_shared(const float& component) {
  return std::atomic_ref<float>(const_cast<float&>(component)).load(std::memory_order_relaxed);
}

inline void store_shared(float& component, float value) { std::atomic_ref<float>(component).store(value, std::memory_order_relaxed); }

// No concurrent addition is lost.
inline void add_shared(float& component, float value) { std::atomic_ref<float>(component).fetch_add(value, std::memory_order_relaxed); }

// Returns what it was before.
inline float fetch_add_shared(float& component, float value) {
  return std::atomic_ref<float>(component).fetch_add(value, std::memory_order_relaxed);
}

// to[i] = shared[i] for every i. The spans have the same length.
void load_shared(std::span<const float> shared, std::span<float> to);

// shared[i] = from[i] for every i. The spans have the same length.
void store_shared(std::span<float> shared, std::span<const float> from);

// shared[i] += from[i] for every i; no concurrent addition is lost. The spans have the same length.
void add_shared(std::span<float> shared, std::span<const float> from);

}  // namespace starling
