// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// GoSGD (Blot, Picard, Cord, Thome, "Gossip training for deep learning", 2016): every worker steps on its own, and now and then pushes its
// weights x to another one, which mixes them into its own. How much a model counts in a mixture is its weight α, 1/P at first. A push takes
// half of it along, and the receiver adds it to its own: so all α, those under way included, add up to 1, and the mean of all models,
// weighted by α, is moved by gradients alone (sum-weight gossip, Kempe, Dobra, Gehrke 2003).
//
// Nobody waits. A push for which there is no room at the receiver is not made, and says so in the ledger: if senders waited, two could wait
// for each other, each with the models of the other on their way to it. What has arrived is mixed in before every gradient.
//
// finish() is exact: a worker tells its neighbours how many models it has sent them, and goes on mixing until everybody has told it. As
// messages of one rank arrive in order, everything is then there. In the end all tell that they are done, so that nobody begins a new
// stretch while others are still in this one.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/floats.h"
#include "starling/base/random.h"
#include "starling/strategy/gossip.h"
#include "starling/strategy/messages.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/shards.h"
#include "starling/strategy/topology.h"
#include "starling/tensor/channel.h"

namespace starling::strategy {
namespace {

using fabric::Message;
using fabric::PeerState;
using fabric::Rank;
using tensor::TensorView;

// Models, and behind the last of them one without values that says how many there were; and that all of them are mixed in.
constexpr fabric::Tag kModel = 1;
constexpr fabric::Tag kDrained = 2;

class GoSgd final : public Strategy {
 public:
  explicit GoSgd(Context context)
      : Strategy(std::move(context)),
        probability_(this->context().settings.number("probability")),
        topology_(Topology::make(topology_of(this->context().settings, this->context().seed), this->context().roles.workers)),
        optimiser_(this->context(), parameters_of(this->context().layout)),
        models_(endpoint(), {.tag = tag_in(this->context(), kModel)}),
        new_messages_(this->context().roles.ranks()),
        steps_(this->context().roles.workers),
        alpha_bits_(std::bit_cast<std::uint64_t>(1.0 / this->context().roles.workers)),
        sent_(static_cast<std::size_t>(this->context().roles.workers)),
        received_(sent_.size()),
        told_(sent_.size()) {}

  // The weights are the same everywhere at first, and later each worker's own.
  Status start(std::span<float> /*weights*/, std::span<const float> /*model*/) override { return {}; }

  Status prepare(std::span<float> weights) override {
    while (std::optional<Message> message = endpoint().poll(fabric::tagged(tag_in(context(), kModel)))) {
      STARLING_TRY(take(std::move(*message), weights));
    }
    return {};
  }

  Status exchange(const Step& step) override {
    if (step.samples > 0 && step.finite) {
      optimiser_.step(step.weights, step.gradient, step.lr, step.first_stage);
      steps_.step(rank());
    }
    const std::optional<Rank> peer = draw_peer(step.number);
    return peer ? push(*peer, step.weights) : Status{};
  }

  Status finish(std::span<float> weights, std::span<float> model) override {
    STARLING_TRY(tell_all_and_drain(weights));
    STARLING_TRY(wait_for_all());
    std::fill(sent_.begin(), sent_.end(), 0);
    std::fill(received_.begin(), received_.end(), 0);
    std::fill(told_.begin(), told_.end(), char{0});
    return peek(weights, model);
  }

  void list_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
    state.add("alpha_bits", alpha_bits_);
    steps_.list_state(state);
  }

 private:
  double alpha() const { return std::bit_cast<double>(alpha_bits_); }
  void set_alpha(double alpha) { alpha_bits_ = std::bit_cast<std::uint64_t>(alpha); }

  // A function of seed, rank and step, so that there is nothing to find again. Workers that are gone are not drawn.
  std::optional<Rank> draw_peer(std::uint64_t number) const {
    RandomStream stream(context().seed, static_cast<std::uint32_t>(rank()), "gosgd push");
    constexpr unsigned kWordsPerStep = 4;
    stream.seek(number << kWordsPerStep);
    if (stream.uniform() >= probability_) return std::nullopt;
    std::vector<Rank> peers;
    for (const int neighbour : topology_.neighbours(rank())) {
      if (endpoint().peer(neighbour) == PeerState::alive) peers.push_back(neighbour);
    }
    if (peers.empty()) return std::nullopt;
    return peers[static_cast<std::size_t>(stream.below(peers.size()))];
  }

  Status push(Rank peer, std::span<const float> weights) {
    // A worker that nobody pushes to for a thousand pushes of its own keeps the little that it has.
    if (alpha() < 2 * std::numeric_limits<double>::min()) return {};
    const params::UpdateId id = context().account.produced_for(std::vector<int>{peer});
    endpoint().pass("push");
    const double half = alpha() / 2;
    set_alpha(half);
    const params::Stamp stamp{.id = id, .contents = steps_.contents(), .value = half};
    Status sent = models_.send(peer, TensorView::of(weights), stamp, fabric::Deadline::after(Duration::zero()));
    if (sent) {
      ++sent_[static_cast<std::size_t>(peer)];
      return {};
    }
    set_alpha(half + half);
    if (sent.failure().kind == FailureKind::peer_lost) {
      context().account.dropped(id, ledger::kReceiverLost);
    } else if (sent.failure().kind == FailureKind::timeout) {
      context().account.dropped(id, ledger::kNoRoom);
    } else {
      return sent;
    }
    return {};
  }

  // x = (α x + α_s x_s) / (α + α_s), as x + α_s/(α + α_s) (x_s - x): two models that are equal stay as they are.
  Status take(Message message, std::span<float> weights) {
    if (!new_messages_.is_new(message)) return {};
    Result<tensor::Incoming> incoming = models_.parse(std::move(message));
    if (!incoming) return incoming.failure();
    const auto source = static_cast<std::size_t>(incoming->source);
    const params::Stamp& stamp = incoming->stamp;
    if (stamp.id.origin < 0) {
      told_[source] = 1;
      if (stamp.version == received_[source]) return {};
      return Failure{FailureKind::mismatch, rank(),
                     incoming->source,      fmt::format("all models of rank {}", incoming->source),
                     Duration::zero(),      fmt::format("it has sent {}, but {} have come", stamp.version, received_[source])};
    }
    const std::span<float> arrived = incoming->tensor.writable_as<float>();
    STARLING_CHECK(arrived.size() == weights.size(),
                   fmt::format("rank {} sent {} floats instead of {}", incoming->source, arrived.size(), weights.size()));
    ++received_[source];
    const double sum = alpha() + stamp.value;
    scaled_difference(arrived, static_cast<float>(stamp.value / sum), arrived, weights);
    add_floats(weights, arrived);
    set_alpha(sum);
    steps_.mix(context().account, stamp);
    return {};
  }

  // Tells how many models there were as soon as there is room for it, and mixes meanwhile, until all have told or are gone. Nobody can wait
  // for room and for a message at once, so where room is missing it looks for it again and again, for as long as anybody gets on.
  Status tell_all_and_drain(std::span<float> weights) {
    const std::span<const int> neighbours = topology_.neighbours(rank());
    std::vector<Rank> to_tell(neighbours.begin(), neighbours.end());
    const auto has_told = [&](int neighbour) { return told_[static_cast<std::size_t>(neighbour)] != 0; };
    fabric::LongWait wait(context().patience, endpoint());
    for (;;) {
      const fabric::Filter filter{.tag = tag_in(context(), kModel), .departures_seen = endpoint().departures().size()};
      STARLING_TRY(tell(to_tell));
      STARLING_TRY(take_from_the_gone(weights));
      if (to_tell.empty() && std::all_of(neighbours.begin(), neighbours.end(), has_told)) return {};
      constexpr Duration kLook = std::chrono::milliseconds(1);
      Result<Message> message =
          to_tell.empty() ? context().patience.receive(endpoint(), filter) : endpoint().receive(filter, fabric::Deadline::after(kLook));
      if (message) {
        STARLING_TRY(take(std::move(*message), weights));
        continue;
      }
      if (message.failure().kind == FailureKind::peer_lost) continue;
      if (message.failure().kind != FailureKind::timeout || to_tell.empty()) return message.failure();
      if (!wait.goes_on()) return wait.given_up(message.failure());
    }
  }

  // Removes those who have been told, or are gone.
  Status tell(std::vector<Rank>& ranks) {
    std::vector<Rank> left;
    for (const Rank to : ranks) {
      const params::Stamp stamp{.version = sent_[static_cast<std::size_t>(to)]};
      Status sent = models_.send(to, TensorView::of(std::span<const float>()), stamp, fabric::Deadline::after(Duration::zero()));
      if (sent || sent.failure().kind == FailureKind::peer_lost) continue;
      if (sent.failure().kind != FailureKind::timeout) return sent;
      left.push_back(to);
    }
    ranks = std::move(left);
    return {};
  }

  // What they had sent before they were lost is as good as any other.
  Status take_from_the_gone(std::span<float> weights) {
    for (const int neighbour : topology_.neighbours(rank())) {
      char& told = told_[static_cast<std::size_t>(neighbour)];
      while (told == 0 && endpoint().peer(neighbour) != PeerState::alive) {
        Result<Message> message = endpoint().receive(fabric::from(neighbour, tag_in(context(), kModel)));
        if (message) {
          STARLING_TRY(take(std::move(*message), weights));
        } else if (message.failure().kind == FailureKind::peer_lost) {
          told = 1;
        } else {
          return message.failure();
        }
      }
    }
    return {};
  }

  Status wait_for_all() {
    const fabric::Tag tag = tag_in(context(), kDrained);
    for (const int neighbour : topology_.neighbours(rank())) {
      Status sent = endpoint().send(neighbour, tag, {});
      if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
    }
    for (const int neighbour : topology_.neighbours(rank())) {
      Result<Message> message = context().patience.receive(endpoint(), fabric::from(neighbour, tag));
      while (message && !new_messages_.is_new(*message)) message = context().patience.receive(endpoint(), fabric::from(neighbour, tag));
      if (!message && message.failure().kind != FailureKind::peer_lost) return message.failure();
    }
    return {};
  }

  double probability_;
  Topology topology_;
  RunOptimiser optimiser_;
  tensor::Channel models_;
  NewMessages new_messages_;
  MixedSteps steps_;
  std::uint64_t alpha_bits_;  // α, as a double: a state holds whole numbers.
  // In this stretch, by worker.
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::vector<char> told_;  // It has told how many it had sent, or is gone. Not vector<bool>, which is no vector.
};

}  // namespace

Description describe_gosgd() {
  Description description;
  description.name = "gosgd";
  description.summary = "gossip: now and then a worker pushes its weights to another, which mixes them into its own; nobody waits";
  description.rule =
      "worker   before each gradient, for every (x_s, a_s) that has arrived: x = (a x + a_s x_s) / (a + a_s), a = a + a_s\n"
      "         x = optimizer step with its own gradient\n"
      "         with the given probability: a = a / 2, and (x, a) goes to a random neighbour\n"
      "a is 1/P at first, and all of them, with those under way, add up to 1. Every worker has a model of its own";
  description.traffic = "per step and worker, on average: as many messages of n floats as the probability says; none comes back";
  description.paper =
      "Blot, Picard, Cord and Thome 2016, on the sum-weight gossip of Kempe, Dobra and Gehrke 2003. A push that finds no room at its\n"
      "receiver is not made; the peers may be those of a topology; the local step may be that of any optimizer";
  description.options = {Option::number("probability", 0.25, 0, 1, "of a push after a step")};
  for (Option& option : topology_options("complete")) description.options.push_back(std::move(option));
  description.options.push_back(result_option());
  description.sends = Sends::weights;
  description.places = Places::addressed;
  description.own_models = true;
  description.survives_lost_worker = true;
  description.make = [](Context context) { return std::make_unique<GoSgd>(std::move(context)); };
  description.check = [](const Settings& settings, const Roles& roles) { (void)Topology::make(topology_of(settings, 1), roles.workers); };
  return description;
}

}  // namespace starling::strategy
