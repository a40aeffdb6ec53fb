// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One-sided memory: a named vector of floats that lives at one rank, its home, and that other ranks read, write and add to without
// the home taking part. Lock-free and atomic component by component: concurrent additions are never lost, but a range that is read
// while others write may mix old and new components.
//
// A window begins with zeros and ends with its home: once the home rank is gone, every operation fails with peer_lost, and a home
// that was restarted opens a new one. Operations return when they have taken effect at the home.
//
//   auto window = endpoint.open_window("centre", layout.size(), 0);
//   if (!window) return window.failure();
//   STARLING_TRY((*window)->add(0, difference));
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "starling/base/result.h"
#include "starling/fabric/deadline.h"
#include "starling/fabric/message.h"

namespace starling::fabric {

// A handle that belongs to the rank that opened it, and is used by that rank only. An offset and length beyond the window are a
// broken invariant. An operation that failed was not carried out, or, where the failure is a time-out, perhaps carried out once.
class Window {
 public:
  virtual ~Window() = default;

  virtual const std::string& name() const = 0;
  virtual Rank home() const = 0;
  virtual std::size_t size() const = 0;  // In floats.

  virtual Status read(std::size_t offset, std::span<float> to, Deadline deadline = Deadline::standard()) = 0;
  virtual Status write(std::size_t offset, std::span<const float> from, Deadline deadline = Deadline::standard()) = 0;
  virtual Status add(std::size_t offset, std::span<const float> values, Deadline deadline = Deadline::standard()) = 0;

  // Adds to one component and returns what it was before, in one instant: how a rank takes a number of its own.
  virtual Result<float> fetch_add(std::size_t offset, float value, Deadline deadline = Deadline::standard()) = 0;

  // The memory itself where this rank can reach it directly, to be touched through base/shared_floats.h only; otherwise empty. A
  // faster way to the same effects: code that uses it keeps a path through read, write and add.
  virtual std::span<float> shared_memory() { return {}; }
};

}  // namespace starling::fabric
