// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a run that live in several processes tell each other beside their strategy: that all are to halt, that the run is given
// up, and how far they are. A rank looks between two steps; no strategy takes these messages for its own, because their tags are reserved.
//
//   Signals signals(endpoint);
//   signals.look();                                   // Takes in what has come.
//   if (signals.given_up()) ...
//
// Reports go to rank 0, and only when it has asked for one: so there is never more than one under way from a rank, however slow rank 0 is,
// and they cannot fill a queue that a strategy needs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "starling/fabric/endpoint.h"

namespace starling::run {

// Of one rank, and used by it alone. The endpoint must outlive it.
class Signals {
 public:
  explicit Signals(fabric::Endpoint& endpoint);

  void look();
  // The same, but waits for the news that the run is given up, for somebody has gone and it may be on its way.
  void await_given_up(Duration longest);

  // That these ranks are to halt in this stretch. What is said of an earlier stretch is forgotten.
  void tell_to_halt(std::span<const fabric::Rank> ranks, std::uint64_t stretch);
  bool told_to_halt(std::uint64_t stretch) const { return halt_in_ == stretch; }

  // All others. A rank passes it on before it ends, because who waits for it hears of its end, and has perhaps not heard from the first.
  void tell_given_up(const std::string& reason);
  const std::optional<std::string>& given_up() const { return given_up_; }

  // Rank 0: asks everybody who has answered the last time, and takes what has come.
  void ask_for_reports();
  void take_reports(const std::function<void(fabric::Rank, std::span<const std::byte>)>& take);
  // The others.
  bool report_wanted() const { return report_wanted_; }
  void report(std::vector<std::byte> bytes);

 private:
  void take_in(const fabric::Message& message);

  fabric::Endpoint& endpoint_;
  std::optional<std::uint64_t> halt_in_;
  std::optional<std::string> given_up_;
  bool report_wanted_ = false;
  std::vector<bool> asked_;  // By rank; at rank 0.
};

// Bytes as a message, without a copy.
fabric::Payload to_payload(std::vector<std::byte> bytes);

}  // namespace starling::run
