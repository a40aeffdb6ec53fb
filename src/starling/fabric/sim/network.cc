// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/network.h"

#include <algorithm>

namespace starling::fabric::sim {
namespace {

// True if one of the rules strikes this message. Every rule that names the link draws, whether or not an earlier one has struck.
bool strikes(const std::vector<MessageFault>& rules, Rank from, Rank to, RandomStream& stream, double* delay_seconds = nullptr) {
  bool struck = false;
  for (const MessageFault& rule : rules) {
    if (!rule.from.contains(from) || !rule.to.contains(to) || stream.uniform() >= rule.probability) continue;
    struck = true;
    if (delay_seconds != nullptr) *delay_seconds += rule.delay.sample(stream);
  }
  return struck;
}

}  // namespace

Network::Network(const SimOptions& options)
    : options_(options),
      sending_free_(static_cast<std::size_t>(options.ranks)),
      receiving_free_(static_cast<std::size_t>(options.ranks)),
      last_arrivals_(static_cast<std::size_t>(options.ranks)) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    const auto stream = [&](std::string_view purpose) { return RandomStream(options.seed, static_cast<std::uint32_t>(rank), purpose); };
    streams_.push_back({stream("sim jitter"), stream("sim drop"), stream("sim duplicate"), stream("sim spike")});
  }
}

const LinkModel& Network::link(Rank from, Rank to) const {
  const std::vector<LinkRule>& rules = options_.network.rules;
  const auto rule = std::find_if(rules.rbegin(), rules.rend(),
                                 [&](const LinkRule& candidate) { return candidate.from.contains(from) && candidate.to.contains(to); });
  return rule == rules.rend() ? options_.network.link : rule->link;
}

Network::Transit Network::send(Rank from, Rank to, std::size_t payload_bytes, Time now, bool reliable) {
  if (from == to) return {.first_byte = now};  // Does not touch the network.
  const LinkModel& model = link(from, to);
  Streams& streams = streams_[static_cast<std::size_t>(from)];
  Transit transit;
  transit.transfer = from_seconds(static_cast<double>(payload_bytes) / model.bytes_per_second);

  Time start = now;
  if (options_.network.serialise_sending) {
    Time& free = sending_free_[static_cast<std::size_t>(from)];
    start = std::max(now, free);
    free = start + transit.transfer;
  }
  for (const PartitionRule& partition : options_.faults.partitions) {
    if (partition.ranks.contains(from) == partition.ranks.contains(to) || !partition.interval.contains(start)) continue;
    if (partition.drop && !reliable) {
      transit.lost = true;
    } else {
      ++faults_.held;
      start = partition.interval.until;
      if (start == kEndOfTime) return {.first_byte = kEndOfTime};
    }
  }
  double spike_seconds = 0;
  if (strikes(options_.faults.spikes, from, to, streams.spike, &spike_seconds)) ++faults_.spiked;
  if (!reliable) {
    if (strikes(options_.faults.drops, from, to, streams.drop)) transit.lost = true;
    if (strikes(options_.faults.duplicates, from, to, streams.duplicate) && !transit.lost) {
      transit.duplicated = true;
      ++faults_.duplicated;
    }
  }
  if (transit.lost) {
    ++faults_.dropped;
    return transit;
  }
  const double jitter_seconds = model.jitter.is_zero() ? 0 : model.jitter.sample(streams.jitter);
  Time& previous = last_arrival(from, to).first_byte;
  previous = std::max(previous, start + model.latency + from_seconds(jitter_seconds + spike_seconds));
  transit.first_byte = previous;
  return transit;
}

Network::LastArrival& Network::last_arrival(Rank from, Rank to) {
  std::vector<LastArrival>& by_receiver = last_arrivals_[static_cast<std::size_t>(from)];
  if (by_receiver.empty()) by_receiver.resize(static_cast<std::size_t>(options_.ranks));
  return by_receiver[static_cast<std::size_t>(to)];
}

Time Network::take_in(Rank from, Rank to, const Transit& transit) {
  Time& previous = last_arrival(from, to).whole;
  if (options_.network.serialise_receiving && transit.transfer > Duration::zero()) {
    Time& free = receiving_free_[static_cast<std::size_t>(to)];
    free = std::max(transit.first_byte, free) + transit.transfer;
    previous = std::max(previous, free);
  } else {
    previous = std::max(previous, transit.first_byte + transit.transfer);
  }
  return previous;
}

}  // namespace starling::fabric::sim
