// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// When a message arrives, if it does: the simulator's links, adapters and message faults.
#pragma once

#include <vector>

#include "starling/fabric/sim/options.h"

namespace starling::fabric::sim {

// What may befall a message.
enum class Care {
  certain,  // Only partitions that hold, no drops and no duplicates: window operations.
  usual,    // Every fault that was asked for.
  none,     // Also those for messages that were only offered.
};

// What was done to messages, over the whole run.
struct MessageFaults {
  std::uint64_t dropped = 0;  // By a drop rule or a partition that drops.
  std::uint64_t duplicated = 0;
  std::uint64_t spiked = 0;
  std::uint64_t held = 0;  // Until the end of a partition.
};

class Network {
 public:
  explicit Network(const SimOptions& options);

  struct Transit {
    bool lost = false;
    bool duplicated = false;
    bool instant = false;                  // No limit on the bandwidth: nothing comes behind the head.
    Time first_byte = Time::zero();        // When the head reaches the receiver's adapter; kEndOfTime if a partition never ends.
    Duration transfer = Duration::zero();  // How long the message then takes to come in.
  };

  // Puts a message on the wire at `now`.
  Transit send(Rank from, Rank to, std::size_t payload_bytes, Time now, Care care);

  // The receiver's adapter takes the message in, starting at the time of its first byte; returns when it is whole.
  Time take_in(Rank from, Rank to, const Transit& transit);

  // See Endpoint::realign.
  void realign(std::uint64_t number);

  const MessageFaults& faults() const { return faults_; }

 private:
  struct Streams {
    RandomStream jitter;
    RandomStream drop;
    RandomStream duplicate;
    RandomStream spike;
  };

  const LinkModel& link(Rank from, Rank to) const;
  Time when_connected(Rank from, Rank to, Time time, Care care, bool& lost);

  // Keeps the order of a link whatever the jitter and the sizes: neither end of a message overtakes that of an earlier one.
  struct LastArrival {
    Time first_byte = Time::zero();
    Time whole = Time::zero();
  };
  LastArrival& last_arrival(Rank from, Rank to);

  const SimOptions& options_;
  std::vector<LinkModel> rule_links_;                    // Of options_.network.rules, completed.
  std::vector<Streams> streams_;                         // By sender, so that one rank's traffic does not disturb another's.
  std::vector<Time> sending_free_;                       // When a rank's adapter can send next.
  std::vector<Time> receiving_free_;                     // When it can take in next.
  std::vector<std::vector<LastArrival>> last_arrivals_;  // By sender, then receiver; filled when a sender first sends.
  MessageFaults faults_;
};

}  // namespace starling::fabric::sim
