// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Weights in a window at worker 0 that nobody locks, and a count of those who have moved them.
//
// The count is one more component of the window, from which each takes a number (fetch_add) just before it adds. The numbers put all
// additions into one order, so that how many came between what a worker has read and its own is known exactly. A float counts to
// 16,777,215; the count begins anew whenever the window is opened, as after every checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "starling/fabric/window.h"
#include "starling/strategy/strategy.h"

namespace starling::strategy {

class CountedWindow {
 public:
  // Called by all workers. Worker 0 writes the first weights; nobody reads before that is done.
  Status open(const Context& context, std::string_view name, std::span<const float> first);

  // All weights, and with them the count. What is read while others add may mix old and new components.
  Status read(std::span<float> weights);
  std::uint64_t count_read() const { return count_read_; }

  // The weights alone: count_read() stays with those that are computed on.
  Status peek(std::span<float> weights) { return window_->read(0, weights); }

  // How many took theirs before. A broken invariant where a float cannot count so far.
  Result<std::uint64_t> take_number();

  // To weights[offset], …, component by component.
  Status add(std::size_t offset, std::span<const float> values) { return window_->add(offset, values); }

  // Whether an operation is a few instructions, so that several small ones cost no more than a large one.
  bool is_memory() { return !window_->shared_memory().empty(); }

 private:
  std::shared_ptr<fabric::Window> window_;
  std::vector<float> with_count_;
  std::uint64_t count_read_ = 0;
};

}  // namespace starling::strategy
