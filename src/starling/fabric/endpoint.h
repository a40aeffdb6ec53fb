// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The contract between a rank and the world. An endpoint is one rank's view, and the only way for a strategy, a collective or any
// other code above the fabrics to touch something that is not a function of its inputs: other ranks, time, randomness, failures.
// Code written on it runs unchanged on threads, in the simulator and on a cluster.
//
//   Status ping(Endpoint& endpoint) {
//     if (endpoint.rank() == 0) return endpoint.send(1, kPing, Payload::copy_of(std::span(weights)));
//     Result<Message> message = endpoint.receive(from(0, kPing));
//     if (!message) return message.failure();
//     ...
//   }
//
// To write a new fabric, implement this class, Window and Fabric (fabric.h), and add the fabric to the contract suite in
// tests/contract. The promises below are what the suite checks.
//
// Threads. An endpoint and its windows belong to the thread (or fibre) of its rank and are used by it alone.
//
// Order. Messages from one rank to another arrive in the order they were sent, whatever their tags. Between different senders there
// is no order. Nothing is lost or given twice, except by a fault that was asked for.
//
// Bounds. Per (sender, receiver) at most queue_messages messages and queue_bytes bytes are under way or unread; a larger single
// message passes when nothing else is. A sender that finds no room waits.
//
// Deadlines. Every blocking call takes a Deadline, and by default the fabric's time-out. A call that fails returns a Failure that
// says who waited for whom, for what and how long.
//
// Messages of the collectives share the bound: with a full queue of unread messages to a peer, a collective with it waits for room too.
//
// Unwinding. A crash that a fault asks for is an exception in the crashed rank, thrown by whatever call it makes or waits in. A destructor
// that makes such calls must therefore not be noexcept, unless it only runs while an exception unwinds the stack: then calls return at
// once.
//
// Departures. A rank is gone when its body has returned (finished) or it has failed or crashed (lost). A wait for a rank that is gone
// ends at once with peer_lost, after everything that it had sent has been received. A wait for any rank ends so when all others are gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "starling/base/function_ref.h"
#include "starling/base/random.h"
#include "starling/base/result.h"
#include "starling/base/time.h"
#include "starling/fabric/deadline.h"
#include "starling/fabric/group.h"
#include "starling/fabric/message.h"
#include "starling/fabric/window.h"

namespace starling::fabric {

enum class PeerState {
  alive,     // As far as this rank has heard.
  finished,  // Its body returned success.
  lost,      // Its body failed, or it crashed.
};

struct Departure {
  Rank rank = 0;
  PeerState state = PeerState::finished;
  Time time = Time::zero();
};

// What one rank has sent and received, windows not included. A message to oneself counts.
struct Traffic {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_received = 0;
};

class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // 0 at first; one more after every restart of this rank.
  virtual int incarnation() const { return 0; }

  // Time since the start of the run. In the simulator, code takes no time: only the calls below do.
  virtual Time now() const = 0;
  virtual void sleep(Duration duration) = 0;

  // Runs `work` to its end, then returns; an exception thrown by the work is thrown here. The simulator charges the time its model
  // gives for `units` of work (by custom, samples) and may run the work on another thread at the same time as other ranks' work.
  // Therefore the work touches only what belongs to this rank, and no endpoint and no window.
  virtual void compute(double units, FunctionRef<void()> work) = 0;

  // Passes a named point of the program, such as "step" or "before push", at which a configuration may place a delay or, in the
  // simulator, a crash. Costs next to nothing where none is placed.
  virtual void pass(std::string_view point) = 0;

  // Sends to any rank, this one included. Returns when the payload is on its way, which may be before it arrives; the payload is gone
  // from the caller either way. Fails with peer_lost if the receiver is gone; success does not promise that it was read.
  virtual Status send(Rank to, Tag tag, Payload payload, Deadline deadline = Deadline::standard()) = 0;

  // Sends without waiting and without a promise: a message that may be lost, for those who would rather lose one than wait. False if there
  // is no room for it or the receiver is gone; then it is lost already. True does not promise that it arrives.
  virtual bool offer(Rank to, Tag tag, Payload payload) {
    return send(to, tag, std::move(payload), Deadline::after(Duration::zero())).ok();
  }

  // Takes the first message that matches, waiting for it if need be.
  virtual Result<Message> receive(const Filter& filter, Deadline deadline = Deadline::standard()) = 0;

  // Takes the first message that matches if it is already here. An empty answer costs a little virtual time in the simulator, so that
  // a loop of polls gets on.
  virtual std::optional<Message> poll(const Filter& filter) = 0;

  // Opens the window `name` at rank `home`, waiting until the home rank has opened it too. All who open it give the same size; another
  // size is a mismatch.
  virtual Result<std::shared_ptr<Window>> open_window(std::string_view name, std::size_t size, Rank home,
                                                      Deadline deadline = Deadline::standard()) = 0;

  // What this rank has heard of the others. Departures are in the order in which they were heard of, and the list only grows; a rank
  // that was restarted and departs again is in it twice.
  virtual PeerState peer(Rank rank) const = 0;
  virtual std::vector<Departure> departures() const = 0;

  virtual Traffic traffic() const = 0;

  // How far others have got, for those who wait long (patience.h). Where ranks live in several processes, the fabric shows the others what
  // this counter says, again and again, until the rank departs or gives another one (or nullptr): it grows whenever the rank gets on, and
  // outlives that. others_progress() is the sum of what the ranks of other processes show, as last heard, some tenths of a second ago. In
  // one process ranks see each other's memory, and both do nothing.
  virtual void show_progress(const std::atomic<std::uint64_t>* counter) { (void)counter; }
  virtual std::uint64_t others_progress() const { return 0; }

  // The stream (seed, rank, purpose). Every call starts it from the beginning: keep the stream, not the call.
  virtual RandomStream random(std::string_view purpose) const = 0;

  // Brings all ranks that are still there to a point from which a new run with start_number = `number` would go on in exactly the same way
  // (FabricOptions): in the simulator they leave it together, at one instant, and everything random begins at the position that belongs to
  // the number. Elsewhere nothing can promise that, and it does nothing. Called by all ranks, when no message is under way, with numbers
  // from 1 to 2^31.
  virtual Status realign(std::uint64_t number, Deadline deadline = Deadline::standard()) {
    (void)number, (void)deadline;
    return {};
  }

  // Adds up `values` over the group, in the order of its members, into all members' `values`. Nothing where the fabric has no way
  // that is faster than messages. Called through collective::all_reduce, which checks the group first.
  virtual std::optional<Status> native_all_reduce(const Group& group, std::span<float> values, Deadline deadline) {
    (void)group, (void)values, (void)deadline;
    return std::nullopt;
  }
};

}  // namespace starling::fabric
