// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Elementwise arithmetic on private float vectors, vectorised with the instructions of the machine it runs on. Every element is
// computed on its own, so the result is the same bit for bit whatever the vector width.
//
// Memory that other threads touch at the same time goes through shared_floats.h instead.
#pragma once

#include <cstddef>
#include <span>

namespace starling {

// to[i] += from[i]. The spans have the same length and do not overlap.
void add_floats(std::span<float> to, std::span<const float> from);

// a[i] and b[i] both become a[i] + b[i]: the all-reduce of two ranks in one pass over memory. Same length, no overlap.
void add_floats_to_both(std::span<float> a, std::span<float> b);

// values[i] *= factor.
void scale_floats(std::span<float> values, float factor);

// to[i] = a[i] - b[i]. Same length; `to` may be one of the two.
void subtract_floats(std::span<float> to, std::span<const float> a, std::span<const float> b);

// to[i] += factor × from[i], rounded twice. Same length, no overlap.
void add_scaled_floats(std::span<float> to, float factor, std::span<const float> from);

// to[i] = factor × (a[i] - b[i]), rounded twice. Same length; `to` may be one of the two.
void scaled_difference(std::span<float> to, float factor, std::span<const float> a, std::span<const float> b);

}  // namespace starling
