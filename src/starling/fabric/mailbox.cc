// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mailbox.h"

#include <utility>

namespace starling::fabric {

void Mailbox::push(Message message) {
  Index index = 0;
  if (free_.empty()) {
    index = static_cast<Index>(nodes_.size());
    nodes_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Sender& sender = at(message.source);
  ++sender.messages;
  sender.bytes += message.payload.total_bytes();
  nodes_[index].message = std::move(message);
  append(all_, &Node::in_all, index);
  append(sender.list, &Node::in_sender, index);
}

std::optional<Message> Mailbox::take(const Filter& filter) {
  const Index index = find(filter);
  if (index == kNone) return std::nullopt;
  Message message = std::move(nodes_[index].message);
  Sender& sender = at(message.source);
  --sender.messages;
  sender.bytes -= message.payload.total_bytes();
  remove(all_, &Node::in_all, index);
  remove(sender.list, &Node::in_sender, index);
  free_.push_back(index);
  return message;
}

void Mailbox::clear() {
  const int senders = static_cast<int>(senders_.size());
  *this = Mailbox(senders);
}

Mailbox::Index Mailbox::find(const Filter& filter) const {
  const bool any = filter.source == kAnyRank;
  const auto link = any ? &Node::in_all : &Node::in_sender;
  Index index = any ? all_.first : at(filter.source).list.first;
  while (index != kNone) {
    const Node& node = nodes_[index];
    if (filter.matches(node.message.source, node.message.tag)) return index;
    index = (node.*link).next;
  }
  return kNone;
}

void Mailbox::append(List& list, Link Node::*link, Index index) {
  nodes_[index].*link = {.previous = list.last, .next = kNone};
  (list.last == kNone ? list.first : (nodes_[list.last].*link).next) = index;
  list.last = index;
}

void Mailbox::remove(List& list, Link Node::*link, Index index) {
  const Link neighbours = nodes_[index].*link;
  (neighbours.previous == kNone ? list.first : (nodes_[neighbours.previous].*link).next) = neighbours.next;
  (neighbours.next == kNone ? list.last : (nodes_[neighbours.next].*link).previous) = neighbours.previous;
}

}  // namespace starling::fabric
