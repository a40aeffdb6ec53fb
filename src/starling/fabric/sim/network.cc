// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/network.h"

#include <algorithm>
#include <cmath>

#include "starling/fabric/point_delays.h"

namespace starling::fabric::sim {
namespace {

// True if one of the rules strikes this message. Every rule that names the link draws, whether or not an earlier one has struck.
bool strikes(const std::vector<MessageFault>& rules, Rank from, Rank to, Care care, RandomStream& stream, double* delay_seconds = nullptr) {
  bool struck = false;
  for (const MessageFault& rule : rules) {
    if (!rule.from.contains(from) || !rule.to.contains(to) || stream.uniform() >= rule.probability) continue;
    if (rule.offered_only && care != Care::none) continue;
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
  for (const LinkRule& rule : options.network.rules) {
    const LinkModel& all = options.network.link;
    rule_links_.push_back(
        {rule.latency.value_or(all.latency), rule.bytes_per_second.value_or(all.bytes_per_second), rule.jitter.value_or(all.jitter)});
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    const auto stream = [&](std::string_view purpose) { return RandomStream(options.seed, static_cast<std::uint32_t>(rank), purpose); };
    streams_.push_back({stream("sim jitter"), stream("sim drop"), stream("sim duplicate"), stream("sim spike")});
  }
  realign(options.start_number);
}

void Network::realign(std::uint64_t number) {
  for (Streams& streams : streams_) {
    for (RandomStream* stream : {&streams.jitter, &streams.drop, &streams.duplicate, &streams.spike}) {
      stream->seek(realigned_position(number));
    }
  }
}

const LinkModel& Network::link(Rank from, Rank to) const {
  const std::vector<LinkRule>& rules = options_.network.rules;
  for (std::size_t i = rules.size(); i > 0; --i) {
    if (rules[i - 1].from.contains(from) && rules[i - 1].to.contains(to)) return rule_links_[i - 1];
  }
  return options_.network.link;
}

// The first moment from `time` on at which no partition separates the two. Sets `lost` if one that drops does so first.
Time Network::when_connected(Rank from, Rank to, Time time, Care care, bool& lost) {
  const Time start = time;
  for (bool held = true; held && time < kEndOfTime;) {
    held = false;
    for (const PartitionRule& partition : options_.faults.partitions) {
      if (partition.ranks.contains(from) == partition.ranks.contains(to) || !partition.interval.contains(time)) continue;
      if (partition.drop && care != Care::certain) {
        lost = true;
        return time;
      }
      time = partition.interval.until;
      held = true;
    }
  }
  if (time > start) ++faults_.held;
  return time;
}

Network::Transit Network::send(Rank from, Rank to, std::size_t payload_bytes, Time now, Care care) {
  Transit transit;
  if (from == to) {  // Does not touch the network.
    transit.instant = true;
    transit.first_byte = now;
    return transit;
  }
  const LinkModel& model = link(from, to);
  Streams& streams = streams_[static_cast<std::size_t>(from)];
  transit.instant = std::isinf(model.bytes_per_second);
  transit.transfer = from_seconds(static_cast<double>(payload_bytes) / model.bytes_per_second);

  Time start = now;
  if (options_.network.serialise_sending) {
    Time& free = sending_free_[static_cast<std::size_t>(from)];
    start = std::max(now, free);
    free = later(start, transit.transfer);
  }
  start = when_connected(from, to, start, care, transit.lost);

  // Everything is drawn whatever befalls the message, so that one fault does not shift the draws of another.
  const double jitter_seconds = model.jitter.is_zero() ? 0 : model.jitter.sample(streams.jitter);
  double spike_seconds = 0;
  const bool spiked = strikes(options_.faults.spikes, from, to, care, streams.spike, &spike_seconds);
  const bool dropped = strikes(options_.faults.drops, from, to, care, streams.drop);
  const bool duplicated = strikes(options_.faults.duplicates, from, to, care, streams.duplicate);
  transit.lost = transit.lost || (dropped && care != Care::certain);
  if (transit.lost) {
    ++faults_.dropped;
    return transit;
  }
  transit.duplicated = duplicated && care != Care::certain;
  if (transit.duplicated) ++faults_.duplicated;
  if (spiked) ++faults_.spiked;
  transit.first_byte = later(later(start, model.latency), from_seconds(jitter_seconds + spike_seconds));
  if (transit.first_byte < kEndOfTime) {  // A message that never arrives holds up no other.
    Time& previous = last_arrival(from, to).first_byte;
    transit.first_byte = previous = std::max(previous, transit.first_byte);
  }
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
    free = later(std::max(transit.first_byte, free), transit.transfer);
    previous = std::max(previous, free);
  } else {
    previous = std::max(previous, later(transit.first_byte, transit.transfer));
  }
  return previous;
}

}  // namespace starling::fabric::sim
