// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/signals.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "starling/base/bytes.h"

namespace starling::run {
namespace {

using fabric::Message;
using fabric::Rank;

// Beyond those of the collectives (exchange.cc) and of meetings (meeting.cc).
constexpr fabric::Tag kSignal = fabric::kFirstReservedTag | 0x4000'0011;
constexpr fabric::Tag kReport = fabric::kFirstReservedTag | 0x4000'0012;

enum class Signal : std::uint8_t { halt = 1, given_up, report_wanted };

// How long somebody who has no room for a signal is waited for; it then hears of the departure instead.
constexpr Duration kRoom = std::chrono::milliseconds(100);

}  // namespace

fabric::Payload to_payload(std::vector<std::byte> bytes) {
  const auto kept = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  return fabric::Payload::adopt(*kept, [kept] {});
}

Signals::Signals(fabric::Endpoint& endpoint) : endpoint_(endpoint), asked_(static_cast<std::size_t>(endpoint.size())) {}

void Signals::look() {
  while (const std::optional<Message> message = endpoint_.poll(fabric::tagged(kSignal))) take_in(*message);
}

void Signals::await_given_up(Duration longest) {
  const fabric::Deadline deadline = fabric::Deadline::at(endpoint_.now() + longest);
  look();
  while (!given_up_) {
    Result<Message> message = endpoint_.receive(fabric::tagged(kSignal), deadline);
    if (!message) return;
    take_in(*message);
  }
}

void Signals::take_in(const Message& message) {
  ByteReader reader(message.payload.bytes());
  switch (reader.get<Signal>()) {
    case Signal::halt:
      halt_in_ = std::max(halt_in_.value_or(0), reader.get<std::uint64_t>());  // Of an earlier stretch it may come late.
      break;
    case Signal::given_up:
      given_up_ = reader.get_text();
      break;
    case Signal::report_wanted:
      report_wanted_ = true;
      break;
  }
  reader.check_end();
}

void Signals::tell_to_halt(std::span<const Rank> ranks, std::uint64_t stretch) {
  for (const Rank rank : ranks) {
    ByteWriter writer;
    writer.put(Signal::halt);
    writer.put(stretch);
    // Who has no room for it goes on to the end of the stretch.
    (void)endpoint_.send(rank, kSignal, to_payload(writer.take()), fabric::Deadline::after(kRoom));
  }
}

void Signals::tell_given_up(const std::string& reason) {
  for (Rank rank = 0; rank < endpoint_.size(); ++rank) {
    if (rank == endpoint_.rank() || endpoint_.peer(rank) != fabric::PeerState::alive) continue;
    ByteWriter writer;
    writer.put(Signal::given_up);
    writer.put_text(reason);
    (void)endpoint_.send(rank, kSignal, to_payload(writer.take()), fabric::Deadline::after(kRoom));
  }
}

void Signals::ask_for_reports() {
  for (Rank rank = 0; rank < endpoint_.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (rank == endpoint_.rank() || asked_[index]) continue;
    ByteWriter writer;
    writer.put(Signal::report_wanted);
    asked_[index] = endpoint_.offer(rank, kSignal, to_payload(writer.take()));
  }
}

void Signals::take_reports(const std::function<void(Rank, std::span<const std::byte>)>& take) {
  while (const std::optional<Message> message = endpoint_.poll(fabric::tagged(kReport))) {
    asked_[static_cast<std::size_t>(message->source)] = false;
    take(message->source, message->payload.bytes());
  }
}

void Signals::report(std::vector<std::byte> bytes) {
  // Without room, it is tried again at the next step.
  if (endpoint_.offer(0, kReport, to_payload(std::move(bytes)))) report_wanted_ = false;
}

}  // namespace starling::run
