// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/gradient_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/floats.h"
#include "starling/strategy/coded_sum.h"
#include "starling/strategy/messages.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {
namespace {

using fabric::Message;
using fabric::Rank;
using tensor::Incoming;
using tensor::TensorView;

constexpr fabric::Tag kGradient = 1;
constexpr fabric::Tag kEnd = 2;
// Of the end of a stream: which end it is, the first and the last number, how many were not finite. Then come these, and those refused.
constexpr std::size_t kEndWords = 4;

std::unique_ptr<codec::Codec> codec_of(const Context& context) {
  if (context.codec == "fp32") return nullptr;
  return codec::make_codec(context.codec, codec_context(context, parameters_of(context.layout)));
}

}  // namespace

GradientStreams::GradientStreams(Context context, StreamOptions options)
    : Strategy(std::move(context)),
      options_(std::move(options)),
      codec_(codec_of(this->context())),
      channel_(
          endpoint(),
          {.tag = tag_in(this->context(), kGradient), .codec = codec_.get(), .codec_values = this->context().layout.parameter_count()}),
      no_room_(options_.peers.size()) {
  if (!this->context().roles.is_worker(rank())) return;
  if (this->context().settings.choice("optimizer") == "run") optimiser_.emplace(this->context(), parameters_of(this->context().layout));
  if (codec_) decoded_.resize(this->context().layout.parameter_count());
}

// All begin with the same weights, or each with its own after a restore; so there is nothing to agree on.
Status GradientStreams::start(std::span<float> /*weights*/, std::span<const float> /*model*/) {
  version_ = context().account.contents().size();
  sent_from_ = context().account.produced_count() + 1;
  return {};
}

Status GradientStreams::drain(std::span<float> weights) {
  const fabric::Filter filter = fabric::anything();
  while (std::optional<Message> message = endpoint().poll(filter)) STARLING_TRY(receive(std::move(*message)));
  apply_arrived(weights);
  return {};
}

Status GradientStreams::prepare(std::span<float> weights) {
  STARLING_TRY(drain(weights));
  computed_on_.version = version_;
  computed_on_.contents = context().account.contents();
  return {};
}

Status GradientStreams::exchange(const Step& step) {
  if (step.samples == 0) return {};
  const params::UpdateId id = produce();
  endpoint().pass("push");
  if (!step.finite) {
    context().account.dropped(id, ledger::kNotFinite);
    not_finite_.push_back(id.number);
    return {};
  }
  computed_on_.id = id;
  computed_on_.value = with_stage(step);
  if (codec_) codec_->set_progress(step.epoch);
  std::optional<tensor::Outgoing> outgoing;
  if (!options_.peers.empty() || codec_)
    outgoing = channel_.make_ready(TensorView::of(std::span<const float>(step.gradient)), computed_on_);
  std::span<const float> own = step.gradient;
  if (codec_) {
    // What the others will see, so that all replicas move alike; the rest stays in the codec and comes with the next.
    const std::optional<std::string> error = codec_->decode(outgoing->bytes(), decoded_);
    STARLING_CHECK(!error, fmt::format("rank {} cannot decode its own update: {}", rank(), *error));
    own = decoded_;
  }
  context().account.applied(computed_on_, version_, context().account.contents());
  ++version_;
  apply(step.weights, own, step.lr, step.first_stage);
  return outgoing ? send(*outgoing, id, step.weights) : Status{};
}

Status GradientStreams::finish(std::span<float> weights, std::span<float> model) {
  ++finishes_;
  for (std::size_t i = 0; i < options_.peers.size(); ++i) {
    std::vector<std::uint64_t> words{finishes_, sent_from_, context().account.produced_count(), not_finite_.size()};
    words.insert(words.end(), not_finite_.begin(), not_finite_.end());
    words.insert(words.end(), no_room_[i].begin(), no_room_[i].end());
    no_room_[i].clear();
    const Rank peer = options_.peers[i];
    STARLING_TRY(send_when_there_is_room(
        [&](fabric::Deadline deadline) {
          return endpoint().send(peer, tag_in(context(), kEnd), fabric::Payload::copy_of(std::span<const std::uint64_t>(words)), deadline);
        },
        weights));
  }
  sent_from_ = context().account.produced_count() + 1;
  not_finite_.clear();
  const auto ended = [&](Rank peer) { return has_ended(peer); };
  while (!std::all_of(options_.peers.begin(), options_.peers.end(), ended)) {
    fabric::Filter filter{.departures_seen = endpoint().departures().size()};
    // Of somebody who is gone only that is awaited which is still under way.
    if (const std::optional<Rank> gone = somebody_gone()) filter = fabric::from(*gone);
    Result<Message> message = context().patience.receive(endpoint(), filter);
    if (message) {
      STARLING_TRY(receive(std::move(*message)));
      apply_arrived(weights);
    } else if (message.failure().kind != FailureKind::peer_lost) {
      return message.failure();
    } else if (filter.source != fabric::kAnyRank) {
      ended_[filter.source] = finishes_;
    }
  }
  std::copy(weights.begin(), weights.end(), model.begin());
  return {};
}

void GradientStreams::list_state(params::StateList& state) {
  if (optimiser_) state.within("optimizer", [&](params::StateList& inner) { optimiser_->list_state(inner); });
  if (codec_) state.within("codec", [&](params::StateList& inner) { codec_->list_state(inner); });
}

Status GradientStreams::other_message(Message message) {
  return Failure{FailureKind::mismatch, rank(),
                 message.source,        fmt::format("a gradient of rank {}", message.source),
                 Duration::zero(),      fmt::format("it sent a message with tag {}", message.tag)};
}

Status GradientStreams::receive(Message message) {
  if (!is_of_this_stretch(context(), message.tag)) return {};  // Given twice by a fault of the network.
  if (message.tag == tag_in(context(), kEnd)) return end_of(message.source, message.payload);
  if (message.tag != tag_in(context(), kGradient)) return other_message(std::move(message));
  Result<Incoming> incoming = channel_.parse(std::move(message));
  if (!incoming) return incoming.failure();
  const params::Stamp& stamp = incoming->stamp;
  STARLING_CHECK(stamp.id.origin == incoming->source && incoming->tensor.size() == context().layout.parameter_count(),
                 fmt::format("rank {} sent {} as an update of rank {}", incoming->source, incoming->tensor.describe(), stamp.id.origin));
  ledger::Account& account = context().account;
  if (account.contents()[stamp.id.origin].contains(stamp.id.number)) return {};  // A fault of the network gives a message twice.
  account.applied(stamp, version_, account.contents());
  ++version_;
  arrived_.push_back({.gradient = std::move(incoming->tensor), .lr = std::abs(stamp.value), .first_stage = std::signbit(stamp.value)});
  return {};
}

// The peer has sent all it has to send. What has not come now was lost, but for what it has not sent.
Status GradientStreams::end_of(Rank peer, const fabric::Payload& payload) {
  const std::span<const std::uint64_t> words = payload.as<std::uint64_t>();
  STARLING_CHECK(words.size() >= kEndWords && words[3] <= words.size() - kEndWords,
                 fmt::format("rank {} ends its stream without saying how long it was", peer));
  if (words[0] <= ended_[peer]) return {};  // Given twice by a fault of the network.
  ended_[peer] = words[0];
  const std::span<const std::uint64_t> not_finite = words.subspan(kEndWords, words[3]);
  const std::span<const std::uint64_t> no_room = words.subspan(kEndWords + words[3]);
  ledger::Account& account = context().account;
  const params::NumberSet& here = account.contents()[peer];
  for (std::uint64_t number = words[1]; number <= words[2]; ++number) {
    // What is not finite the origin has dropped for all.
    if (here.contains(number) || std::binary_search(not_finite.begin(), not_finite.end(), number)) continue;
    const bool refused = std::binary_search(no_room.begin(), no_room.end(), number);
    account.dropped({.origin = peer, .number = number}, refused ? ledger::kNoRoom : ledger::kLostOnTheWay);
  }
  return {};
}

// Applying is arithmetic on this rank's memory alone, and in the simulator takes no time, as everything between two computations.
void GradientStreams::apply_arrived(std::span<float> weights) {
  if (arrived_.empty()) return;
  endpoint().compute(0, [&] {
    for (const Arrived& one : arrived_) {
      const std::span<const float> gradient = one.gradient.as<float>();
      if (options_.weight == 1 || !optimiser_) {
        apply(weights, gradient, options_.weight * one.lr, one.first_stage);
      } else {
        weighted_.assign(gradient.begin(), gradient.end());
        scale_floats(weighted_, static_cast<float>(options_.weight));
        apply(weights, weighted_, one.lr, one.first_stage);
      }
    }
  });
  arrived_.clear();
}

void GradientStreams::apply(std::span<float> weights, std::span<const float> gradient, double lr, bool first_stage) {
  if (optimiser_) {
    optimiser_->step(weights, gradient, lr, first_stage);
  } else {
    add_scaled_floats(weights, -static_cast<float>(lr), gradient);
  }
}

// Everything that is sent goes through here, but for offers. Who is gone gets nothing.
Status GradientStreams::send_when_there_is_room(FunctionRef<Status(fabric::Deadline)> send, std::span<float> weights) {
  constexpr Duration kPause = std::chrono::milliseconds(1);
  fabric::LongWait wait(context().patience, endpoint());
  for (;;) {
    Status sent = send(fabric::Deadline::after(kPause));
    if (sent || sent.failure().kind == FailureKind::peer_lost) return {};
    if (sent.failure().kind != FailureKind::timeout) return sent;
    if (!wait.goes_on()) return wait.given_up(sent.failure());
    STARLING_TRY(drain(weights));
  }
}

Status GradientStreams::send(const tensor::Outgoing& outgoing, const params::UpdateId& id, std::span<float> weights) {
  for (std::size_t i = 0; i < options_.peers.size(); ++i) {
    const Rank peer = options_.peers[i];
    if (std::find(places_.begin(), places_.end(), peer) == places_.end()) continue;
    if (options_.offers) {
      if (channel_.offer(peer, outgoing)) continue;
      no_room_[i].push_back(id.number);
      continue;
    }
    STARLING_TRY(send_when_there_is_room([&](fabric::Deadline deadline) { return channel_.send(peer, outgoing, deadline); }, weights));
  }
  return {};
}

// Meant for those who are there: what somebody who is gone will never get is no loss.
params::UpdateId GradientStreams::produce() {
  places_.assign(1, rank());
  for (const Rank peer : options_.peers) {
    if (endpoint().peer(peer) == fabric::PeerState::alive) places_.push_back(peer);
  }
  return context().account.produced_for(places_);
}

bool GradientStreams::has_ended(Rank peer) const {
  const auto found = ended_.find(peer);
  return found != ended_.end() && found->second >= finishes_;
}

std::optional<Rank> GradientStreams::somebody_gone() const {
  const auto found = std::find_if(options_.peers.begin(), options_.peers.end(),
                                  [&](Rank peer) { return !has_ended(peer) && endpoint().peer(peer) != fabric::PeerState::alive; });
  return found == options_.peers.end() ? std::nullopt : std::optional(*found);
}

std::vector<Rank> others(const Roles& roles, Rank rank) {
  std::vector<Rank> result;
  for (Rank worker = 0; worker < roles.workers; ++worker) {
    if (worker != rank) result.push_back(worker);
  }
  return result;
}

std::string stream_opening(const Settings& settings, const Roles& /*roles*/, const params::Layout& /*layout*/) {
  if (settings.choice("optimizer") == "run") return "";
  return "every replica makes steps of plain SGD, whatever --optimizer says; the strategy's option optimizer=run has it used";
}

Option stream_weight_option() {
  return Option::number("weight", 0, 0, 1, "of a gradient that arrives, where the own one has 1; 0: 1 / (peers + 1)");
}

double stream_weight(const Settings& settings, std::size_t peers) {
  const double given = settings.number("weight");
  return given > 0 ? given : 1.0 / static_cast<double>(peers + 1);
}

Option stream_optimiser_option(const std::string& standard) {
  return Option::choice("optimizer", standard, {"sgd", "run"},
                        "what every replica does with a gradient: plain SGD, or a step of the run's optimizer");
}

}  // namespace starling::strategy
