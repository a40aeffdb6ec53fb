// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The heart of the simulator: virtual time, the queue of events, and the ranks, each of which runs or waits. world.cc has the clock and the
// life of ranks, delivery.cc what travels between them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/work_pool.h"
#include "starling/fabric/endpoint.h"
#include "starling/fabric/mailbox.h"
#include "starling/fabric/point_delays.h"
#include "starling/fabric/sim/fibre.h"
#include "starling/fabric/sim/network.h"
#include "starling/fabric/sim/options.h"
#include "starling/fabric/sim/trace.h"

namespace starling::fabric::sim {

struct WindowMemory {
  std::string name;
  Rank home = 0;
  std::vector<float> floats;
  bool open = true;  // Until its home is gone.
};

// One operation on a window, while the rank that asked for it waits.
struct WindowOperation {
  enum class Kind { read, write, add, fetch_add };
  Kind kind;
  std::shared_ptr<WindowMemory> window;
  std::size_t offset;
  float* target;        // Of a read and a fetch_add.
  const float* source;  // Of all but a read.
  std::size_t count;
  bool carried_out = false;  // At the home; the answer is on its way.
  bool done = false;

  void carry_out();
};

enum class WaitKind { none, sleep, compute, poll, message, room, window, opening, realigning };

enum class Wake {
  signal,    // Something changed; look again.
  expired,   // The time is up.
  deadlock,  // Nothing can change any more.
  crashed,   // The rank was crashed while its stack is already being unwound.
};

struct Wait {
  WaitKind kind = WaitKind::none;
  std::uint64_t number = 0;  // Distinguishes this wait from earlier ones of the rank.
  Time since = Time::zero();
  Time until = kEndOfTime;
  bool standard = false;
  Wake wake = Wake::signal;
  Rank peer = kAnyRank;                  // Whom the rank waits for, if it is one.
  const Filter* filter = nullptr;        // Of WaitKind::message.
  WorkPool::Job* job = nullptr;          // Of WaitKind::compute.
  WindowOperation* operation = nullptr;  // Of WaitKind::window.
  std::uint64_t realignment = 0;         // Of WaitKind::realigning.

  // A wait of the caller's own that ends by itself. Without one, and with nothing under way, the ranks are deadlocked.
  bool ends_by_itself() const { return !standard && until < kEndOfTime; }

  // "a message with tag 7 from rank 3", for reports.
  std::string description() const;
};

// Thrown into a rank that was crashed, to unwind its stack.
struct RankUnwind {};

// What is on its way from one rank to another. What has arrived is accounted for in the mailbox.
struct Channel {
  std::size_t messages = 0;  // That take room, those behind an endless partition included.
  std::size_t bytes = 0;
  std::size_t arriving = 0;  // Messages that will arrive.
};

struct RankState {
  RankState(const SimOptions& options, Rank rank);

  Rank rank;
  int incarnation = 0;
  std::unique_ptr<Fibre> fibre;
  std::unique_ptr<Endpoint> endpoint;
  bool running = false;  // Has a body that has not ended.
  bool crashed = false;  // This incarnation.
  Wait wait;
  Mailbox mailbox;
  std::vector<Channel> channels;       // By sender.
  std::size_t arriving = 0;            // From all senders.
  std::vector<std::uint64_t> sent_to;  // Messages by receiver.
  PeerState seen_as = PeerState::alive;
  std::size_t departures_heard = 0;
  PointDelays delays;
  RandomStream compute_stream;
  std::map<std::string, int, std::less<>> passes;
  Traffic traffic;
};

class World {
 public:
  World(const SimOptions& options, const Body& body);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Runs until every rank has ended.
  RunReport run();

  const SimOptions& options() const { return options_; }
  Time now() const { return now_; }
  const MessageFaults& message_faults() const { return network_.faults(); }

  // For the endpoints. All are called from the fibre of the rank in question.

  // Suspends the rank until `until` or until it is woken; a window operation is first sent on its way. Throws RankUnwind if the rank is
  // crashed meanwhile, unless it is already unwinding.
  Wake block(RankState& rank, Wait wait, Time until);

  // True if a rank that was crashed should do nothing more, because it is being unwound. Throws RankUnwind if it is not unwinding yet.
  static bool unwinding(const RankState& rank);

  void compute(RankState& rank, double units, FunctionRef<void()> work);
  void pass(RankState& rank, std::string_view point);
  bool has_room(const RankState& sender, Rank to, std::size_t payload_bytes) const;
  void send(RankState& sender, Rank to, Tag tag, Payload payload, Care care);
  std::optional<Message> take(RankState& rank, const Filter& filter);
  bool nobody_can_send(const RankState& rank, const Filter& filter) const;
  std::shared_ptr<WindowMemory> find_window(std::string_view name, Rank home) const;
  std::shared_ptr<WindowMemory> create_window(std::string_view name, std::size_t size, Rank home);

  // How many departures this rank has heard of: those from whom nothing is on its way to it any more.
  std::size_t departures_heard(RankState& rank) const;
  const std::vector<Departure>& departures() const { return departures_; }

  RankState& rank(Rank rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const RankState& rank(Rank rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  struct InFlight {
    enum class Kind { message, window_request, window_reply };
    Kind kind = Kind::message;
    Rank from = 0;
    Rank to = 0;
    int incarnation = 0;        // Of the receiver when this was sent: a later one does not get it.
    Message message;            // Of Kind::message.
    bool is_duplicate = false;  // Likewise.
    std::size_t payload_bytes = 0;
    Network::Transit transit;
    Rank asker = 0;  // Of the window kinds: whose wait this is about, and which of its waits.
    std::uint64_t wait = 0;
  };

  enum class EventKind { timer, head_arrives, arrives, crash, restart, departure };
  struct Event {
    Time time = Time::zero();
    std::uint64_t number = 0;  // The order in which events were caused, which decides between those of the same time.
    EventKind kind;
    Rank rank = 0;
    std::uint64_t wait = 0;                 // The wait that a timer ends.
    std::unique_ptr<InFlight> in_flight{};  // Of the two arrivals.
    const CrashRule* rule = nullptr;        // Of a crash.
    int incarnation = 0;                    // Of a departure.
  };

  static bool happens_later(const Event& a, const Event& b);
  void schedule(Event event);
  void happen(Event event);
  void start_rank(RankState& rank);
  void resume(RankState& rank);
  void ended(RankState& rank);
  void abandon();
  void wake(RankState& rank, Wake reason);
  void expire(const Event& timer);
  bool is_stale(const Event& event) const;
  void crash(RankState& rank, const CrashRule* rule, const std::string& reason);
  void depart(Rank gone, PeerState state, int incarnation);
  bool concerns(const Wait& wait, const RankState& waiter, Rank gone) const;
  void report_deadlock();
  void realign_if_all_are_there();
  double compute_seconds(RankState& rank, double units);

  void launch(std::unique_ptr<InFlight> in_flight, Care care);
  void on_its_way(std::unique_ptr<InFlight> in_flight);
  void deliver(InFlight& in_flight);
  void deliver_message(InFlight& in_flight, RankState& receiver, bool there);
  void wake_if_it_can_go_on(RankState& receiver);
  void wake_sender(Rank sender, Rank receiver);
  void ask(const RankState& asker);
  void answer(const InFlight& in_flight, RankState& asker);

  const SimOptions& options_;
  const Body& body_;
  WorkPool pool_;
  Trace trace_;
  Network network_;
  Time now_;
  std::vector<Event> events_;  // A heap, the next one in front.
  std::uint64_t next_number_ = 0;
  std::size_t stale_timers_ = 0;
  // Events that can bring something about. Standard deadlines are not among them: if nothing else is left, the ranks are deadlocked.
  std::int64_t live_events_ = 0;
  std::deque<RankState*> ready_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  int running_ranks_ = 0;
  int pending_restarts_ = 0;
  int alive_ranks_;  // As far as anybody has heard.
  std::vector<Departure> departures_;
  std::vector<std::shared_ptr<WindowMemory>> windows_;
  Time deadlock_time_ = kEndOfTime;
  int deadlocks_at_that_time_ = 0;
  RunReport report_;
};

}  // namespace starling::fabric::sim
