// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The messages that have arrived at one rank and are not read yet, for implementers of fabrics. Taking the first message from
// one sender, or the first from anybody, costs the same however many others wait; only a search for a tag looks at messages it does not
// want. After the first few messages nothing is allocated.
//
// Not thread-safe: a fabric with threads guards it with a lock of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "starling/fabric/message.h"

namespace starling::fabric {

class Mailbox {
 public:
  explicit Mailbox(int senders) : senders_(static_cast<std::size_t>(senders)) {}

  void push(Message message);

  // The message that arrived first among those that match.
  std::optional<Message> take(const Filter& filter);

  bool has(const Filter& filter) const { return find(filter) != kNone; }

  std::size_t messages_from(Rank sender) const { return at(sender).messages; }
  std::size_t bytes_from(Rank sender) const { return at(sender).bytes; }

  // Throws all messages away.
  void clear();

 private:
  using Index = std::uint32_t;
  static constexpr Index kNone = ~Index{0};

  struct Link {
    Index previous = kNone;
    Index next = kNone;
  };
  struct List {
    Index first = kNone;
    Index last = kNone;
  };
  // A message is in two lists: of all messages in order of arrival, and of those of its sender.
  struct Node {
    Message message;
    Link in_all;
    Link in_sender;
  };
  struct Sender {
    List list;
    std::size_t messages = 0;
    std::size_t bytes = 0;
  };

  const Sender& at(Rank sender) const { return senders_[static_cast<std::size_t>(sender)]; }
  Sender& at(Rank sender) { return senders_[static_cast<std::size_t>(sender)]; }
  Index find(const Filter& filter) const;
  void append(List& list, Link Node::*link, Index index);
  void remove(List& list, Link Node::*link, Index index);

  std::vector<Node> nodes_;
  std::vector<Index> free_;
  List all_;
  std::vector<Sender> senders_;
};

}  // namespace starling::fabric
