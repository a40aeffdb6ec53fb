// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What travels between the ranks of a simulated world: messages, and the requests and replies of windows.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "starling/base/floats.h"
#include "starling/fabric/sim/world.h"

namespace starling::fabric::sim {

bool World::has_room(const RankState& sender, Rank to, std::size_t payload_bytes) const {
  const RankState& receiver = rank(to);
  const Channel& channel = receiver.channels[static_cast<std::size_t>(sender.rank)];
  const std::size_t messages = channel.messages + receiver.mailbox.messages_from(sender.rank);
  const std::size_t bytes = channel.bytes + receiver.mailbox.bytes_from(sender.rank);
  return messages == 0 || (messages < options_.queue_messages && bytes + payload_bytes <= options_.queue_bytes);
}

void World::send(RankState& sender, Rank to, Tag tag, Payload payload, Care care) {
  auto in_flight = std::make_unique<InFlight>();
  in_flight->from = sender.rank;
  in_flight->to = to;
  in_flight->incarnation = rank(to).incarnation;
  in_flight->payload_bytes = payload.total_bytes();
  in_flight->message = {sender.rank, tag, std::move(payload), sender.sent_to[static_cast<std::size_t>(to)]++};
  ++sender.traffic.messages_sent;
  sender.traffic.bytes_sent += in_flight->payload_bytes;
  trace_.sent(in_flight->message, to, now_);
  launch(std::move(in_flight), care);
}

void World::launch(std::unique_ptr<InFlight> in_flight, Care care) {
  in_flight->transit = network_.send(in_flight->from, in_flight->to, in_flight->payload_bytes, now_, care);
  const auto description = [&] { return fmt::format("message {} to rank {}", in_flight->message.sequence, in_flight->to); };
  if (in_flight->transit.lost) {
    if (trace_.on()) trace_.mark(in_flight->from, "drop", now_, description());
    return;
  }
  std::unique_ptr<InFlight> duplicate;
  if (in_flight->transit.duplicated) {
    if (trace_.on()) trace_.mark(in_flight->from, "duplicate", now_, description());
    duplicate = std::make_unique<InFlight>();
    duplicate->from = in_flight->from;
    duplicate->to = in_flight->to;
    duplicate->incarnation = in_flight->incarnation;
    const Message& original = in_flight->message;
    duplicate->message = {original.source, original.tag, original.payload.share(), original.sequence};
    duplicate->message.payload.set_head(original.payload.head());
    duplicate->is_duplicate = true;
    duplicate->payload_bytes = in_flight->payload_bytes;
    duplicate->transit = in_flight->transit;
  }
  on_its_way(std::move(in_flight));
  if (duplicate) on_its_way(std::move(duplicate));
}

void World::on_its_way(std::unique_ptr<InFlight> in_flight) {
  const bool arrives = in_flight->transit.first_byte < kEndOfTime;  // Otherwise a partition that never ends keeps it.
  if (in_flight->kind == InFlight::Kind::message) {
    RankState& receiver = rank(in_flight->to);
    Channel& channel = receiver.channels[static_cast<std::size_t>(in_flight->from)];
    ++channel.messages;
    channel.bytes += in_flight->payload_bytes;
    channel.arriving += arrives ? 1 : 0;
    receiver.arriving += arrives ? 1 : 0;
  }
  if (!arrives) return;
  // All messages of a link go the same way, through one event or through two: only so does the order of their numbers keep that of their
  // sending when they arrive at the same time.
  const Time first_byte = in_flight->transit.first_byte;
  const EventKind kind = in_flight->transit.instant ? EventKind::arrives : EventKind::head_arrives;
  schedule({.time = first_byte, .kind = kind, .in_flight = std::move(in_flight)});
}

void World::deliver(InFlight& in_flight) {
  RankState& receiver = rank(in_flight.to);
  const bool there = receiver.running && !receiver.crashed && receiver.incarnation == in_flight.incarnation;
  if (in_flight.kind == InFlight::Kind::message) return deliver_message(in_flight, receiver, there);
  RankState& asker = rank(in_flight.asker);
  const bool awaited = asker.wait.kind == WaitKind::window && asker.wait.number == in_flight.wait;
  if (there && awaited) answer(in_flight, asker);
}

void World::deliver_message(InFlight& in_flight, RankState& receiver, bool there) {
  Channel& channel = receiver.channels[static_cast<std::size_t>(in_flight.from)];
  --channel.messages;
  channel.bytes -= in_flight.payload_bytes;
  --channel.arriving;
  --receiver.arriving;
  // The built-in protocols know a duplicate by its sequence number.
  const bool unwanted = in_flight.is_duplicate && in_flight.message.tag >= kFirstReservedTag;
  if (there && !unwanted) {
    receiver.mailbox.push(std::move(in_flight.message));
  } else {
    if (trace_.on()) {
      trace_.mark(in_flight.to, "discard", now_, fmt::format("message {} from rank {}", in_flight.message.sequence, in_flight.from));
    }
    wake_sender(in_flight.from, in_flight.to);
  }
  wake_if_it_can_go_on(receiver);
}

// After a message has arrived or turned out to be none.
void World::wake_if_it_can_go_on(RankState& receiver) {
  if (receiver.wait.kind != WaitKind::message) return;
  const Filter& filter = *receiver.wait.filter;
  const bool heard = filter.departures_seen && departures_heard(receiver) > *filter.departures_seen;
  if (heard || receiver.mailbox.has(filter) || nobody_can_send(receiver, filter)) wake(receiver, Wake::signal);
}

void World::wake_sender(Rank sender, Rank receiver) {
  RankState& state = rank(sender);
  if (state.wait.kind == WaitKind::room && state.wait.peer == receiver) wake(state, Wake::signal);
}

std::optional<Message> World::take(RankState& rank, const Filter& filter) {
  std::optional<Message> message = rank.mailbox.take(filter);
  if (!message) return message;
  ++rank.traffic.messages_received;
  rank.traffic.bytes_received += message->payload.total_bytes();
  trace_.received(*message, rank.rank, now_);
  wake_sender(message->source, rank.rank);
  return message;
}

bool World::nobody_can_send(const RankState& rank, const Filter& filter) const {
  if (filter.source == kAnyRank) return alive_ranks_ <= 1 && rank.arriving == 0;
  const Channel& channel = rank.channels[static_cast<std::size_t>(filter.source)];
  return this->rank(filter.source).seen_as != PeerState::alive && channel.arriving == 0;
}

std::shared_ptr<WindowMemory> World::find_window(std::string_view name, Rank home) const {
  const auto found =
      std::find_if(windows_.begin(), windows_.end(), [&](const auto& window) { return window->name == name && window->home == home; });
  return found == windows_.end() ? nullptr : *found;
}

std::shared_ptr<WindowMemory> World::create_window(std::string_view name, std::size_t size, Rank home) {
  auto window = std::make_shared<WindowMemory>();
  window->name = name;
  window->home = home;
  window->floats.resize(size);
  windows_.push_back(window);
  for (const auto& other : ranks_) {
    if (other->wait.kind == WaitKind::opening && other->wait.peer == home) wake(*other, Wake::signal);
  }
  return window;
}

void WindowOperation::carry_out() {
  float* memory = window->floats.data() + offset;
  if (kind == Kind::read) {
    std::copy_n(memory, count, target);
  } else if (kind == Kind::write) {
    std::copy_n(source, count, memory);
  } else {
    if (kind == Kind::fetch_add) *target = *memory;
    add_floats({memory, count}, {source, count});
  }
  carried_out = true;
}

void World::ask(const RankState& asker) {
  const WindowOperation& operation = *asker.wait.operation;
  auto request = std::make_unique<InFlight>();
  request->kind = InFlight::Kind::window_request;
  request->from = asker.rank;
  request->to = operation.window->home;
  request->incarnation = rank(request->to).incarnation;
  request->payload_bytes = operation.kind == WindowOperation::Kind::read ? 0 : operation.count * sizeof(float);
  request->asker = asker.rank;
  request->wait = asker.wait.number;
  launch(std::move(request), Care::certain);
}

// A request has reached the window's home, or the reply has come back.
void World::answer(const InFlight& in_flight, RankState& asker) {
  WindowOperation& operation = *asker.wait.operation;
  if (in_flight.kind == InFlight::Kind::window_reply) {
    operation.done = operation.carried_out;
    return wake(asker, Wake::signal);
  }
  // A home that was restarted knows nothing of its former windows, and its reply says so.
  if (operation.window->open) operation.carry_out();
  auto reply = std::make_unique<InFlight>();
  reply->kind = InFlight::Kind::window_reply;
  reply->from = in_flight.to;
  reply->to = in_flight.from;
  reply->incarnation = asker.incarnation;
  const bool has_data = operation.carried_out && operation.target != nullptr;
  reply->payload_bytes = has_data ? operation.count * sizeof(float) : 0;
  reply->asker = asker.rank;
  reply->wait = in_flight.wait;
  launch(std::move(reply), Care::certain);
}

}  // namespace starling::fabric::sim
