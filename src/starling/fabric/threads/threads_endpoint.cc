// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/threads/threads_endpoint.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/shared_floats.h"

namespace starling::fabric::threads {
namespace {

class ThreadsWindow final : public Window {
 public:
  ThreadsWindow(World& world, Rank rank, std::shared_ptr<WindowMemory> memory) : world_(world), rank_(rank), memory_(std::move(memory)) {}

  const std::string& name() const override { return memory_->name; }
  Rank home() const override { return memory_->home; }
  std::size_t size() const override { return memory_->size; }

  Status read(std::size_t offset, std::span<float> to, Deadline /*deadline*/) override {
    STARLING_TRY(check_home());
    load_shared(range(offset, to.size()), to);
    return {};
  }
  Status write(std::size_t offset, std::span<const float> from, Deadline /*deadline*/) override {
    STARLING_TRY(check_home());
    store_shared(range(offset, from.size()), from);
    return {};
  }
  Status add(std::size_t offset, std::span<const float> values, Deadline /*deadline*/) override {
    STARLING_TRY(check_home());
    add_shared(range(offset, values.size()), values);
    return {};
  }
  Result<float> fetch_add(std::size_t offset, float value, Deadline /*deadline*/) override {
    STARLING_TRY(check_home());
    return fetch_add_shared(range(offset, 1)[0], value);
  }
  std::span<float> shared_memory() override { return {memory_->floats.get(), memory_->size}; }

 private:
  std::span<float> range(std::size_t offset, std::size_t count) {
    STARLING_CHECK(offset <= size() && count <= size() - offset,
                   fmt::format("floats {} to {} of window '{}', which has {}", offset, offset + count, name(), size()));
    return shared_memory().subspan(offset, count);
  }
  Status check_home() const {
    if (world_.state(memory_->home) == PeerState::alive) return {};
    return Failure{FailureKind::peer_lost, rank_,
                   memory_->home,          fmt::format("window '{}' at rank {}", memory_->name, memory_->home),
                   Duration::zero(),       "its home is gone"};
  }

  World& world_;
  Rank rank_;
  std::shared_ptr<WindowMemory> memory_;
};

}  // namespace

void ThreadsEndpoint::sleep(Duration duration) { std::this_thread::sleep_for(duration); }

void ThreadsEndpoint::compute(double units, FunctionRef<void()> work) {
  if (speed_ == 1 || units == 0) return work();
  const Time begin = now();
  work();
  const Duration taken = now() - begin;
  sleep(from_seconds(to_seconds(taken) * (1 / speed_ - 1)));
}

void ThreadsEndpoint::pass(std::string_view point) {
  const Duration delay = delays_.draw(point);
  if (delay > Duration::zero()) sleep(delay);
}

bool ThreadsEndpoint::has_room(const Inbox& inbox, std::size_t payload_bytes) const {
  const std::size_t messages = inbox.mailbox.messages_from(rank_);
  const FabricOptions& options = world_.options();
  return messages == 0 || (messages < options.queue_messages && inbox.mailbox.bytes_from(rank_) + payload_bytes <= options.queue_bytes);
}

Status ThreadsEndpoint::send(Rank to, Tag tag, Payload payload, Deadline deadline) {
  STARLING_CHECK(to >= 0 && to < size(), fmt::format("rank {} sends to rank {} of {}", rank_, to, size()));
  Inbox& inbox = world_.inbox(to);
  const std::size_t payload_bytes = payload.total_bytes();
  Time begin = Time::min();
  bool expired = false;
  for (;;) {
    const std::uint32_t ticket = inbox.drained.ticket();
    if (world_.state(to) != PeerState::alive) {
      return Failure{FailureKind::peer_lost,
                     rank_,
                     to,
                     fmt::format("rank {} to take a message with tag {}", to, tag),
                     begin == Time::min() ? Duration::zero() : now() - begin,
                     "it is gone"};
    }
    {
      const std::lock_guard lock(inbox.mutex);
      if (has_room(inbox, payload_bytes)) {
        inbox.mailbox.push({rank_, tag, std::move(payload), sent_to_[static_cast<std::size_t>(to)]++});
        break;
      }
      ++inbox.blocked_senders;
    }
    if (begin == Time::min()) begin = now();
    const auto limit = world_.real_time(deadline.resolve(begin, world_.options().timeout));
    if (!expired) expired = !inbox.drained.wait(ticket, limit, world_.spin());
    {
      const std::lock_guard lock(inbox.mutex);
      --inbox.blocked_senders;
      if (expired && !has_room(inbox, payload_bytes)) {
        return Failure{
            FailureKind::timeout,
            rank_,
            to,
            fmt::format("room at rank {} for a message with tag {}", to, tag),
            now() - begin,
            fmt::format("{} messages ({} bytes) lie there unread", inbox.mailbox.messages_from(rank_), inbox.mailbox.bytes_from(rank_))};
      }
    }
  }
  inbox.arrived.notify();
  ++traffic_.messages_sent;
  traffic_.bytes_sent += payload_bytes;
  return {};
}

std::optional<Message> ThreadsEndpoint::poll(const Filter& filter) {
  check_source(filter, size());
  Inbox& inbox = world_.inbox(rank_);
  std::optional<Message> message;
  bool wake_senders = false;
  {
    const std::lock_guard lock(inbox.mutex);
    message = inbox.mailbox.take(filter);
    wake_senders = inbox.blocked_senders > 0;
  }
  if (!message) return message;
  if (wake_senders) inbox.drained.notify();
  ++traffic_.messages_received;
  traffic_.bytes_received += message->payload.total_bytes();
  return message;
}

Result<Message> ThreadsEndpoint::receive(const Filter& filter, Deadline deadline) {
  check_source(filter, size());
  Inbox& inbox = world_.inbox(rank_);
  Time begin = Time::min();
  bool expired = false;
  for (;;) {
    // The order matters: what a rank sent before it left is in the mailbox by the time it is seen to be gone.
    const std::uint32_t ticket = inbox.arrived.ticket();
    const bool gone = nobody_can_send(filter) || (filter.departures_seen && world_.departure_count() > *filter.departures_seen);
    if (std::optional<Message> message = poll(filter)) return std::move(*message);
    if (begin == Time::min()) begin = now();
    if (gone) return lost(filter, begin);
    if (expired) return Failure{FailureKind::timeout, rank_, filter.source, filter.description(), now() - begin, ""};
    const auto limit = world_.real_time(deadline.resolve(begin, world_.options().timeout));
    expired = !inbox.arrived.wait(ticket, limit, world_.spin());
  }
}

bool ThreadsEndpoint::nobody_can_send(const Filter& filter) const {
  if (filter.source != kAnyRank) return world_.state(filter.source) != PeerState::alive;
  return world_.departure_count() + 1 >= static_cast<std::size_t>(size());
}

Failure ThreadsEndpoint::lost(const Filter& filter, Time begin) const {
  Failure failure{FailureKind::peer_lost, rank_, filter.source, filter.description(), now() - begin, "it is gone"};
  const std::vector<Departure> departures = world_.departures();
  if (filter.departures_seen && *filter.departures_seen < departures.size()) {
    failure.peer = departures[*filter.departures_seen].rank;
    failure.detail = fmt::format("rank {} is gone", failure.peer);
  } else if (filter.source == kAnyRank) {
    failure.detail = "no other rank is left";
  }
  return failure;
}

Result<std::shared_ptr<Window>> ThreadsEndpoint::open_window(std::string_view name, std::size_t size, Rank home, Deadline deadline) {
  STARLING_CHECK(home >= 0 && home < this->size(), fmt::format("window '{}' at rank {} of {}", name, home, this->size()));
  const Time begin = now();
  const auto limit = world_.real_time(deadline.resolve(begin, world_.options().timeout));
  const auto failure = [&](FailureKind kind, std::string detail) {
    return Failure{kind, rank_, home, fmt::format("window '{}' at rank {}", name, home), now() - begin, std::move(detail)};
  };
  bool expired = false;
  for (;;) {
    const std::uint32_t ticket = world_.windows_changed().ticket();
    const bool gone = world_.state(home) != PeerState::alive;
    if (gone) return failure(FailureKind::peer_lost, "its home is gone");
    if (std::shared_ptr<WindowMemory> memory = world_.find_window(name, size, home, home == rank_)) {
      if (home == rank_) world_.windows_changed().notify();
      if (memory->size != size) {
        return failure(FailureKind::mismatch, fmt::format("it has {} floats, this rank asked for {}", memory->size, size));
      }
      return std::shared_ptr<Window>(std::make_shared<ThreadsWindow>(world_, rank_, std::move(memory)));
    }
    if (expired) return failure(FailureKind::timeout, "its home has not opened it");
    expired = !world_.windows_changed().wait(ticket, limit, world_.spin());
  }
}

std::optional<Status> ThreadsEndpoint::native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) {
  if (site_ == nullptr || site_->group() != group) site_ = &world_.all_reduce_site(group);
  return site_->reduce(*group.index_of(rank_), values, deadline);
}

}  // namespace starling::fabric::threads
