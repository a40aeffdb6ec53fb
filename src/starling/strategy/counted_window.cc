// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/counted_window.h"

#include <algorithm>
#include <string>

#include "starling/base/error.h"
#include "starling/strategy/gathering.h"

namespace starling::strategy {

Status CountedWindow::open(const Context& context, std::string_view name, std::span<const float> first) {
  Result<std::shared_ptr<fabric::Window>> window = context.endpoint.open_window(name, first.size() + 1, 0);
  if (!window) return window.failure();
  window_ = *window;
  with_count_.resize(first.size() + 1);
  if (context.endpoint.rank() == 0) {
    std::copy(first.begin(), first.end(), with_count_.begin());
    with_count_.back() = 0;
    STARLING_TRY(window_->write(0, with_count_));
  }
  return wait_for_all(context, 1);
}

// One operation where each costs a round trip; two where they cost nothing, and a copy would.
Status CountedWindow::read(std::span<float> weights) {
  if (is_memory()) {
    STARLING_TRY(window_->read(weights.size(), std::span(with_count_).last(1)));
    STARLING_TRY(window_->read(0, weights));
  } else {
    STARLING_TRY(window_->read(0, with_count_));
    std::copy(with_count_.begin(), with_count_.end() - 1, weights.begin());
  }
  count_read_ = static_cast<std::uint64_t>(with_count_.back());
  return {};
}

Result<std::uint64_t> CountedWindow::take_number() {
  Result<float> number = window_->fetch_add(with_count_.size() - 1, 1);
  if (!number) return number.failure();
  constexpr float kLargest = 16'777'215;
  STARLING_CHECK(*number < kLargest,
                 std::string("the shared weights have been moved too often since the last checkpoint for a float to count it"));
  return static_cast<std::uint64_t>(*number);
}

}  // namespace starling::strategy
