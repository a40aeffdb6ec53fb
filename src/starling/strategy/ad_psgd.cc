// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// AD-PSGD (Lian, Zhang, Zhang, Liu, "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018): in every step a worker
// and a random neighbour average their weights, while the gradient is being computed. The graph is bipartite: workers of even rank are
// active and ask, those of odd rank are passive and answer. So nobody waits in a circle: the active wait for the passive, and the passive
// for nobody.
//
// An exchange is atomic for both: the active worker's weights do not change from its request to the reply, and the passive one answers with
// its weights and takes the average in one, between its own gradients. Without gradients the sum of all weights stays as it is.
//
// Between a request and its reply an active worker sends nothing else, so at most one message is under way in either direction of a pair,
// and no send waits for room.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
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

// To the passive: weights, or without values that no more will come. To the active: weights, or that all active have finished.
constexpr fabric::Tag kRequest = 1;
constexpr fabric::Tag kReply = 2;
constexpr fabric::Tag kFinished = 3;

bool is_active(Rank rank) { return rank % 2 == 0; }

// The workers on the other side: all, or those next to it on a ring.
std::vector<Rank> partners_of(Rank rank, int workers, const std::string& topology) {
  const Topology graph = Topology::make({.kind = topology}, workers);
  std::vector<Rank> partners;
  for (const int other : graph.neighbours(rank)) {
    if (is_active(other) != is_active(rank)) partners.push_back(other);
  }
  return partners;
}

class AdPsgd final : public Strategy {
 public:
  explicit AdPsgd(Context context)
      : Strategy(std::move(context)),
        active_(is_active(rank())),
        partners_(partners_of(rank(), this->context().roles.workers, this->context().settings.choice("topology"))),
        optimiser_(this->context(), parameters_of(this->context().layout)),
        requests_(endpoint(), {.tag = tag_in(this->context(), kRequest)}),
        replies_(endpoint(), {.tag = tag_in(this->context(), kReply)}),
        new_messages_(this->context().roles.ranks()),
        steps_(this->context().roles.workers),
        finished_(static_cast<std::size_t>(this->context().roles.workers)) {}

  // The weights are the same everywhere at first, and later each worker's own.
  Status start(std::span<float> /*weights*/, std::span<const float> /*model*/) override { return {}; }

  // Active: asks, and computes while the answer is under way.
  Status prepare(std::span<float> weights) override { return active_ ? ask(weights) : answer_all(weights); }

  Status exchange(const Step& step) override {
    ++number_;
    if (asked_) STARLING_TRY(take_reply(step.weights));
    if (step.samples > 0 && step.finite) {
      optimiser_.step(step.weights, step.gradient, step.lr, step.first_stage);
      steps_.step(rank());
    }
    return active_ ? Status{} : answer_all(step.weights);
  }

  Status finish(std::span<float> weights, std::span<float> model) override {
    STARLING_TRY(active_ ? finish_active() : finish_passive(weights));
    return peek(weights, model);
  }

  void list_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
    state.add("steps", number_);
    steps_.list_state(state);
  }

 private:
  struct Asked {
    Rank partner = 0;
    params::UpdateId id{};
  };

  // A function of seed, rank and step. Partners that are gone are not drawn.
  std::optional<Rank> draw_partner() const {
    std::vector<Rank> there;
    for (const Rank partner : partners_) {
      if (endpoint().peer(partner) == PeerState::alive) there.push_back(partner);
    }
    if (there.empty()) return std::nullopt;
    RandomStream stream(context().seed, static_cast<std::uint32_t>(rank()), "ad-psgd partner");
    constexpr unsigned kWordsPerStep = 4;
    stream.seek(number_ << kWordsPerStep);
    return there[static_cast<std::size_t>(stream.below(there.size()))];
  }

  Status ask(std::span<const float> weights) {
    const std::optional<Rank> partner = draw_partner();
    if (!partner) return {};
    const params::UpdateId id = context().account.produced_for(std::vector<int>{*partner, rank()});
    endpoint().pass("push");
    Status sent = requests_.send(*partner, TensorView::of(weights), {.id = id, .contents = steps_.contents()});
    if (sent) {
      asked_ = Asked{.partner = *partner, .id = id};
      return {};
    }
    if (sent.failure().kind != FailureKind::peer_lost) return sent;
    context().account.dropped(id, ledger::kReceiverLost);
    return {};
  }

  // The partner's weights from before its half of the exchange. Where it is lost before it has answered, there was none.
  Status take_reply(std::span<float> weights) {
    const Asked asked = *std::exchange(asked_, std::nullopt);
    const fabric::Filter filter = fabric::from(asked.partner, tag_in(context(), kReply));
    Result<Message> message = context().patience.receive(endpoint(), filter);
    while (message && !new_messages_.is_new(*message)) message = context().patience.receive(endpoint(), filter);
    if (message) {
      Result<tensor::Incoming> incoming = replies_.parse(std::move(*message));
      if (!incoming) return incoming.failure();
      average(weights, *incoming);
      return {};
    }
    if (message.failure().kind != FailureKind::peer_lost) return message.failure();
    context().account.dropped(asked.id, ledger::kReceiverLost);
    return {};
  }

  // Both sides round the same sum, so that they have the same weights after it.
  void average(std::span<float> weights, const tensor::Incoming& incoming) {
    const std::span<const float> arrived = incoming.tensor.as<float>();
    STARLING_CHECK(arrived.size() == weights.size(),
                   fmt::format("rank {} sent {} floats instead of {}", incoming.source, arrived.size(), weights.size()));
    constexpr float kHalf = 0.5F;
    add_floats(weights, arrived);
    scale_floats(weights, kHalf);
    steps_.mix(context().account, incoming.stamp);
  }

  Status answer_all(std::span<float> weights) {
    while (std::optional<Message> message = endpoint().poll(fabric::tagged(tag_in(context(), kRequest)))) {
      STARLING_TRY(answer(std::move(*message), weights));
    }
    return {};
  }

  Status answer(Message message, std::span<float> weights) {
    if (!new_messages_.is_new(message)) return {};
    Result<tensor::Incoming> incoming = requests_.parse(std::move(message));
    if (!incoming) return incoming.failure();
    if (incoming->stamp.id.origin < 0) {
      finished_[static_cast<std::size_t>(incoming->source)] = 1;
      return {};
    }
    endpoint().pass("push");
    Status sent = replies_.send(incoming->source, TensorView::of(std::span<const float>(weights)),
                                {.id = incoming->stamp.id, .contents = steps_.contents()});
    if (sent) {
      average(weights, *incoming);
      return {};
    }
    // It is lost, and with it its half of the exchange: so there is none.
    return sent.failure().kind == FailureKind::peer_lost ? Status{} : sent;
  }

  // Waits for the passive too, so that none gets a request of the next stretch while it is still in this one.
  Status finish_active() {
    for (const Rank partner : partners_) {
      Status sent = requests_.send(partner, TensorView::of(std::span<const float>()));
      if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
    }
    for (const Rank partner : partners_) {
      const fabric::Filter filter = fabric::from(partner, tag_in(context(), kFinished));
      Result<Message> message = context().patience.receive(endpoint(), filter);
      while (message && !new_messages_.is_new(*message)) message = context().patience.receive(endpoint(), filter);
      if (!message && message.failure().kind != FailureKind::peer_lost) return message.failure();
    }
    return {};
  }

  // Answers until no active partner will ask again.
  Status finish_passive(std::span<float> weights) {
    for (;;) {
      const fabric::Filter filter{.tag = tag_in(context(), kRequest), .departures_seen = endpoint().departures().size()};
      const bool all_finished = std::all_of(partners_.begin(), partners_.end(), [&](Rank partner) {
        return finished_[static_cast<std::size_t>(partner)] != 0 || endpoint().peer(partner) != PeerState::alive;
      });
      if (all_finished) break;
      Result<Message> message = context().patience.receive(endpoint(), filter);
      if (message) {
        STARLING_TRY(answer(std::move(*message), weights));
      } else if (message.failure().kind != FailureKind::peer_lost) {
        return message.failure();
      }
    }
    std::fill(finished_.begin(), finished_.end(), char{0});
    for (const Rank partner : partners_) {
      Status sent = endpoint().send(partner, tag_in(context(), kFinished), {});
      if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
    }
    return {};
  }

  bool active_;
  std::vector<Rank> partners_;
  RunOptimiser optimiser_;
  tensor::Channel requests_;
  tensor::Channel replies_;
  NewMessages new_messages_;
  MixedSteps steps_;
  std::uint64_t number_ = 0;      // Exchanges so far, of which the partner is a function.
  std::optional<Asked> asked_{};  // From prepare() to exchange(), on active workers.
  std::vector<char> finished_;    // By worker, on passive ones. Not vector<bool>, which is no vector.
};

void check_ring(const Settings& settings, const Roles& roles) {
  constexpr int kSides = 2;
  if (settings.choice("topology") != "ring" || roles.workers % kSides == 0 || roles.workers == 1) return;
  throw UserError(fmt::format(
      "on a ring of {} workers active and passive cannot take turns, as their number is odd; use {} or {}, or topology complete",
      roles.workers, roles.workers - 1, roles.workers + 1));
}

}  // namespace

Description describe_ad_psgd() {
  Description description;
  description.name = "ad-psgd";
  description.summary = "in every step a worker and a random neighbour average their weights, while the gradient is computed";
  description.rule =
      "active (even rank)   sends x to a random passive neighbour; g = gradient at x; receives its x_p;\n"
      "                     x = optimizer step from (x + x_p) / 2 with g\n"
      "passive (odd rank)   x = optimizer step with its own gradient; before and after it, for every x_a that has arrived:\n"
      "                     answers with x, then x = (x + x_a) / 2\n"
      "Every worker has a model of its own";
  description.traffic = "per step of an active worker: 1 message of n floats to a passive one, and 1 back";
  description.paper =
      "Lian, Zhang, Zhang and Liu 2018. Active and passive are told apart by rank; the local step may be that of any optimizer, and of an\n"
      "active worker it is made after the average";
  description.options = {Option::choice("topology", "complete", {"complete", "ring"},
                                        "an active worker's neighbours: all passive ones, or the two next to it"),
                         result_option()};
  description.sends = Sends::weights;
  description.places = Places::addressed;
  description.own_models = true;
  description.survives_lost_worker = true;
  description.make = [](Context context) { return std::make_unique<AdPsgd>(std::move(context)); };
  description.check = check_ring;
  return description;
}

}  // namespace starling::strategy
