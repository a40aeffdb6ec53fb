// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Sends tensors between ranks: any type, any shape, dense or sparse by rows, through a codec, with a stamp that says which update it is and
// what it was computed on. Strategies are written on it, and so can an experiment of your own be.
//
//   Channel channel(endpoint, {.tag = 1});
//   STARLING_TRY(channel.send(1, TensorView::of(std::span<const float>(gradient)), {.id = {.origin = 0, .number = 7}}));
//   Result<Incoming> incoming = channel.receive(0);
//   std::span<const float> gradient = incoming->tensor.as<float>();
//
// What it copies. send(view) copies once (or encodes). send(Tensor) copies nothing where the fabric moves messages inside a process: the
// receiver gets the very memory. lend(view) copies nothing either, and needs no memory of its own: the caller promises to leave it as it is
// until the receiver is done, of which only the two of them can know (a reply). A receiver that writes to what it got gets a copy of its
// own first, where anybody else still has that memory. Through a codec everything is encoded into new memory, and decoded into new memory.
//
// A tensor that is not what its view says (bytes that do not fit the shape, rows that are not ascending) is a broken invariant of the
// sender. What arrives is checked as if it came from anywhere: a mismatch names both sides, and the message is gone.
//
// Thread-safety: a channel belongs to its rank. Any number of channels may stand on one endpoint, told apart by their tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/base/result.h"
#include "starling/codec/codec.h"
#include "starling/fabric/endpoint.h"
#include "starling/params/version_vector.h"
#include "starling/tensor/tensor.h"
#include "starling/tensor/wire.h"

namespace starling::tensor {

struct ChannelOptions {
  fabric::Tag tag = 0;  // Of all messages of this channel.
  // For dense f32 tensors; others travel as they are. Not owned, may be null: then they travel as they are too. Both sides have one of the
  // same specification and layout. A codec with a residual belongs to one stream of updates, so give each such stream a channel.
  codec::Codec* codec = nullptr;
  // How many floats the codec's layout has. If it is given, f32 tensors of any other size travel as they are, and what arrives encoded must
  // have it. If it is 0, every dense f32 tensor must be of the codec's layout, and a size that arrives is believed.
  std::size_t codec_values = 0;
};

// What arrived.
struct Incoming {
  fabric::Rank source = 0;
  params::Stamp stamp{};
  Tensor tensor{};  // Dense; empty where rows are sparse.
  std::optional<SparseRows> sparse{};
};

// A tensor that is ready to be sent, any number of times: copied or encoded once. Movable.
class Outgoing {
 public:
  // What travels after the head: the values, or what a codec made of them.
  std::span<const std::byte> bytes() const { return payload_.bytes(); }

 private:
  friend class Channel;

  std::vector<std::uint64_t> head_{};
  fabric::Payload payload_{};
};

// A receive that was begun; see Channel::begin_receive.
class Pending;

class Channel {
 public:
  Channel(fabric::Endpoint& endpoint, ChannelOptions options) : endpoint_(endpoint), options_(options) {}

  // Blocking calls wait for room, and for what is to be received, until the deadline. Failures are those of the endpoint, and mismatch for
  // bytes that are no tensor.
  Status send(fabric::Rank to, const TensorView& tensor, const params::Stamp& stamp = {},
              fabric::Deadline deadline = fabric::Deadline::standard());
  Status send(fabric::Rank to, Tensor tensor, const params::Stamp& stamp = {}, fabric::Deadline deadline = fabric::Deadline::standard());
  Status lend(fabric::Rank to, const TensorView& tensor, const params::Stamp& stamp = {},
              fabric::Deadline deadline = fabric::Deadline::standard());
  Status send(fabric::Rank to, const SparseRowsView& rows, const params::Stamp& stamp = {},
              fabric::Deadline deadline = fabric::Deadline::standard());

  // The same to several ranks: made ready once, it is sent to each without another copy (where the fabric moves messages inside a process),
  // and goes through the codec once. offer() is Endpoint::offer(): false if it is lost already.
  Outgoing make_ready(const TensorView& tensor, const params::Stamp& stamp = {});
  Status send(fabric::Rank to, const Outgoing& outgoing, fabric::Deadline deadline = fabric::Deadline::standard());
  bool offer(fabric::Rank to, const Outgoing& outgoing);

  // The next from this rank, or from anybody (fabric::kAnyRank).
  Result<Incoming> receive(fabric::Rank from, fabric::Deadline deadline = fabric::Deadline::standard());
  // The same, also ending with peer_lost when more departures were seen than `departures_seen` (see fabric::Filter).
  Result<Incoming> receive(const fabric::Filter& filter, fabric::Deadline deadline = fabric::Deadline::standard());

  // Into memory of the caller's, whose type and shape must be those of what arrives: otherwise a mismatch that names both. Returns the
  // stamp. Sparse rows overwrite their rows and leave the others alone. After a failure to decode, the memory is undefined.
  Result<params::Stamp> receive_into(fabric::Rank from, const MutableTensorView& to,
                                     fabric::Deadline deadline = fabric::Deadline::standard());

  // Only what is here already. A mismatch is a failure, so the answer has two layers: nothing yet; or a result.
  std::optional<Result<Incoming>> poll(fabric::Rank from);

  // Says what is to be received, and lets the caller go on: the answer's ready() looks without waiting, wait() waits. Sending needs no such
  // thing: it returns as soon as the fabric has taken the message. Of several that wait for the same rank, who asks first gets what came
  // first. The channel must outlive the answer.
  Pending begin_receive(fabric::Rank from);

  // Turns a message that the caller received itself (with the channel's tag) into a tensor.
  Result<Incoming> parse(fabric::Message message);

 private:
  bool uses_codec(DType dtype, std::size_t values) const;
  Status send_encoded(fabric::Rank to, const TensorView& tensor, const params::Stamp& stamp, fabric::Deadline deadline);
  Status send_payload(fabric::Rank to, fabric::Payload payload, fabric::Deadline deadline);  // With head_.
  Status read(const fabric::Message& message, Header& header) const;
  Status check_codec(const fabric::Message& message, const Header& header) const;
  Status decode(const fabric::Message& message, const Header& header, std::span<float> values);
  Failure mismatch(fabric::Rank peer, std::string detail) const;

  fabric::Endpoint& endpoint_;
  ChannelOptions options_;
  // Kept so that sending need not allocate them.
  std::vector<std::byte> encoded_{};
  std::vector<std::uint64_t> head_{};
};

class Pending {
 public:
  bool ready();                                                                     // Looks, without waiting. True for a mismatch too.
  Result<Incoming> wait(fabric::Deadline deadline = fabric::Deadline::standard());  // Once; then the pending is used up.

 private:
  friend class Channel;
  Pending(Channel& channel, fabric::Rank from) : channel_(&channel), from_(from) {}

  Channel* channel_;
  fabric::Rank from_;
  std::optional<Result<Incoming>> arrived_{};
  bool used_up_ = false;
};

}  // namespace starling::tensor
