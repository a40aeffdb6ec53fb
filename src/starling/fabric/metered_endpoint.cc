// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/metered_endpoint.h"

#include <algorithm>
#include <utility>

namespace starling::fabric {
namespace {

// Shares the counter with its endpoint, so that a window may be kept longer.
class MeteredWindow final : public Window {
 public:
  MeteredWindow(std::shared_ptr<Window> window, std::shared_ptr<std::uint64_t> bytes, bool elsewhere)
      : window_(std::move(window)), bytes_(std::move(bytes)), elsewhere_(elsewhere) {}

  const std::string& name() const override { return window_->name(); }
  Rank home() const override { return window_->home(); }
  std::size_t size() const override { return window_->size(); }
  std::span<float> shared_memory() override { return window_->shared_memory(); }

  Status read(std::size_t offset, std::span<float> to, Deadline deadline) override {
    return counted(to.size_bytes(), window_->read(offset, to, deadline));
  }
  Status write(std::size_t offset, std::span<const float> from, Deadline deadline) override {
    return counted(from.size_bytes(), window_->write(offset, from, deadline));
  }
  Status add(std::size_t offset, std::span<const float> values, Deadline deadline) override {
    return counted(values.size_bytes(), window_->add(offset, values, deadline));
  }
  Result<float> fetch_add(std::size_t offset, float value, Deadline deadline) override {
    Result<float> before = window_->fetch_add(offset, value, deadline);
    if (before && elsewhere_) *bytes_ += sizeof(float);
    return before;
  }

 private:
  Status counted(std::size_t size_bytes, Status status) {
    if (status && elsewhere_) *bytes_ += size_bytes;
    return status;
  }

  std::shared_ptr<Window> window_;
  std::shared_ptr<std::uint64_t> bytes_;
  bool elsewhere_;
};

}  // namespace

std::uint64_t MeteredEndpoint::bytes_moved() const { return endpoint_.traffic().bytes_sent + *window_bytes_ + reduced_bytes_; }

Status MeteredEndpoint::send(Rank to, Tag tag, Payload payload, Deadline deadline) {
  const Time begin = endpoint_.now();
  Status status = endpoint_.send(to, tag, std::move(payload), deadline);
  waited_ += endpoint_.now() - begin;
  if (published_ != nullptr) published_->store(published_base_ + bytes_moved(), std::memory_order_relaxed);
  return status;
}

void MeteredEndpoint::publish(std::atomic<std::uint64_t>* where, std::uint64_t base) {
  published_ = where;
  published_base_ = base - bytes_moved();
}

Result<Message> MeteredEndpoint::receive(const Filter& filter, Deadline deadline) {
  const Time begin = endpoint_.now();
  Result<Message> message = endpoint_.receive(filter, deadline);
  waited_ += endpoint_.now() - begin;
  if (after_receive_) after_receive_();
  return message;
}

Result<std::shared_ptr<Window>> MeteredEndpoint::open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) {
  Result<std::shared_ptr<Window>> window = endpoint_.open_window(name, size, home, deadline);
  if (!window) return window;
  return std::shared_ptr<Window>(std::make_shared<MeteredWindow>(std::move(*window), window_bytes_, home != rank()));
}

std::optional<Status> MeteredEndpoint::native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) {
  const Time begin = endpoint_.now();
  const std::uint64_t sent_before = endpoint_.traffic().bytes_sent;
  std::optional<Status> status = endpoint_.native_all_reduce(group, values, deadline);
  if (!status) return status;
  const Duration duration = endpoint_.now() - begin;
  const auto shortest = shortest_reduce_.find(values.size());
  if (!*status) {
    // It was given up, after nothing but waiting.
    waited_ += duration;
    return status;
  }
  if (shortest == shortest_reduce_.end()) {
    shortest_reduce_.emplace(values.size(), duration);
  } else {
    shortest->second = std::min(shortest->second, duration);
    waited_ += duration - shortest->second;
  }
  const auto members = static_cast<std::uint64_t>(group.size());
  // Between hosts it may send messages, which are counted as such.
  const std::uint64_t sent = endpoint_.traffic().bytes_sent - sent_before;
  const std::uint64_t moved = 2 * (members - 1) * values.size_bytes() / members;
  reduced_bytes_ += moved - std::min(moved, sent);
  return status;
}

}  // namespace starling::fabric
