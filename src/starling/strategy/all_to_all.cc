// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Decentralised asynchronous training (Tosi, Venkataraman, Theobald et al., "TensAIR: real-time training of neural networks from
// data-streams"): a mini-batch generator streams batches to the models; a model computes on a batch, applies its own gradient at once,
// sends it to all others, and applies what has arrived from them before it takes the next batch. Sums, no averages, no momentum.
//
// Flow control. A worker asks for so many batches that `ahead` are with it or on their way; it says how many it has asked for in all, so
// that a request that a fault has doubled asks for nothing more. The generator deals one batch per request, to whoever asked first: a slow
// worker asks seldom and is not flooded, no batch is given twice, and none is left out as long as no worker is lost.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "starling/base/error.h"
#include "starling/strategy/gradient_streams.h"
#include "starling/strategy/messages.h"
#include "starling/strategy/methods.h"

namespace starling::strategy {
namespace {

using fabric::Message;
using fabric::PeerState;
using fabric::Rank;

constexpr fabric::Tag kAsk = 3;
constexpr fabric::Tag kBatch = 4;
constexpr fabric::Tag kPause = 5;
constexpr fabric::Tag kDone = 6;

constexpr Duration kRetry = std::chrono::milliseconds(1);  // For models that have no room.

fabric::Payload to_payload(const Assignment& batch) {
  const std::vector<std::uint64_t> head{batch.epoch, batch.sample, batch.number};
  fabric::Payload payload = fabric::Payload::copy_of(std::span<const std::uint32_t>(batch.indices));
  payload.set_head(std::as_bytes(std::span(head)));
  return payload;
}

Assignment to_assignment(const fabric::Payload& payload) {
  const std::span<const std::byte> head = payload.head();
  const std::span<const std::uint64_t> words{reinterpret_cast<const std::uint64_t*>(head.data()), head.size() / sizeof(std::uint64_t)};
  STARLING_CHECK(words.size() == 3, std::string("a batch from a generator says where its stream stands"));
  const std::span<const std::uint32_t> indices = payload.as<std::uint32_t>();
  return {.epoch = words[0], .sample = words[1], .number = words[2], .indices = {indices.begin(), indices.end()}};
}

class AllToAll final : public GradientStreams {
 public:
  explicit AllToAll(const Context& context)
      : GradientStreams(context, {.peers = context.roles.is_worker(context.endpoint.rank()) ? others(context.roles, context.endpoint.rank())
                                                                                            : std::vector<Rank>{}}),
        ahead_(static_cast<std::uint64_t>(context.settings.integer("ahead"))),
        dealt_(static_cast<std::size_t>(context.roles.workers)),
        asked_(dealt_.size()),
        early_(dealt_.size()),
        held_(dealt_.size()),
        paused_(dealt_.size()),
        done_(dealt_.size()) {}

  // Workers.

  Result<std::optional<Assignment>> next_batch() override {
    STARLING_TRY(ask());
    while (batches_.empty() && !stream_paused_) {
      // Only from the generator: gradients wait until the batch is there, and are applied before it.
      Result<Message> message = context().patience.receive(endpoint(), fabric::from(context().roles.generator()));
      if (!message) return message.failure();
      if (is_of_this_stretch(context(), message->tag)) STARLING_TRY(other_message(std::move(*message)));
    }
    if (batches_.empty()) return std::optional<Assignment>{};
    std::optional<Assignment> batch = std::move(batches_.front());
    batches_.pop_front();
    ++taken_;
    return batch;
  }

  Status finish(std::span<float> weights, std::span<float> model) override {
    Status sent = endpoint().send(context().roles.generator(), tag_in(context(), kDone), {});
    if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
    STARLING_TRY(GradientStreams::finish(weights, model));
    asked_for_ = taken_ = 0;
    stream_paused_ = false;
    return {};
  }

  // The generator.

  Status start_serving() override { return {}; }

  Status serve() override {
    std::fill(done_.begin(), done_.end(), 0);
    for (std::size_t worker = 0; worker < early_.size(); ++worker) {
      asked_[worker] = std::exchange(early_[worker], 0);
      STARLING_TRY(deal(static_cast<Rank>(worker)));
    }
    while (any_at_work()) {
      const fabric::Filter filter{.departures_seen = endpoint().departures().size()};
      if (!any_at_work()) break;  // The last one departed just now.
      Result<Message> message =
          any_held() ? endpoint().receive(filter, fabric::Deadline::after(kRetry)) : context().patience.receive(endpoint(), filter);
      const bool in_vain = !message && (message.failure().kind == FailureKind::peer_lost || any_held());
      if (!message && !in_vain) return message.failure();
      if (message) STARLING_TRY(handle(*message));
      for (Rank worker = 0; worker < context().roles.workers; ++worker) {
        if (held_[static_cast<std::size_t>(worker)]) STARLING_TRY(deal(worker));
      }
    }
    std::fill(dealt_.begin(), dealt_.end(), 0);
    std::fill(asked_.begin(), asked_.end(), 0);
    std::fill(paused_.begin(), paused_.end(), 0);
    return {};
  }

  void list_state(params::StateList& state) override {
    if (context().roles.is_worker(rank())) GradientStreams::list_state(state);
  }

 protected:
  Status other_message(Message message) override {
    if (message.tag == tag_in(context(), kBatch)) {
      Assignment batch = to_assignment(message.payload);
      if (batch.number <= last_number_) return {};  // Given twice by a fault of the network.
      last_number_ = batch.number;
      batches_.push_back(std::move(batch));
      return {};
    }
    if (message.tag != tag_in(context(), kPause)) return GradientStreams::other_message(std::move(message));
    stream_paused_ = true;
    return {};
  }

 private:
  Status ask() {
    if (stream_paused_ || asked_for_ >= taken_ + ahead_) return {};
    asked_for_ = taken_ + ahead_;
    const std::vector<std::uint64_t> words{asked_for_};
    return endpoint().send(context().roles.generator(), tag_in(context(), kAsk), fabric::Payload::copy_of(std::span(words)));
  }

  bool any_held() const {
    return std::any_of(held_.begin(), held_.end(), [](const auto& batch) { return batch.has_value(); });
  }

  bool any_at_work() const {
    for (Rank worker = 0; worker < context().roles.workers; ++worker) {
      if (done_[static_cast<std::size_t>(worker)] == 0 && endpoint().peer(worker) == PeerState::alive) return true;
    }
    return false;
  }

  Status handle(const Message& message) {
    if (!is_of_this_stretch(context(), message.tag)) return {};  // Given twice by a fault of the network.
    const auto worker = static_cast<std::size_t>(message.source);
    if (message.tag == tag_in(context(), kDone)) {
      done_[worker] = 1;
      return {};
    }
    STARLING_CHECK(message.tag == tag_in(context(), kAsk) && message.payload.size_bytes() == sizeof(std::uint64_t),
                   fmt::format("rank {} sent its generator a message with tag {}", message.source, message.tag));
    const std::uint64_t asked = message.payload.as<std::uint64_t>()[0];
    if (done_[worker] != 0) {  // For the time after this stretch, which others have not yet finished.
      early_[worker] = asked;
      return {};
    }
    asked_[worker] = std::max(asked_[worker], asked);
    return deal(message.source);
  }

  Status deal(Rank to) {
    const auto worker = static_cast<std::size_t>(to);
    while (dealt_[worker] < asked_[worker] && paused_[worker] == 0) {
      std::optional<Assignment> batch = held_[worker] ? std::exchange(held_[worker], std::nullopt) : context().batches->next();
      Status sent = batch ? endpoint().send(to, tag_in(context(), kBatch), to_payload(*batch), fabric::Deadline::after(Duration::zero()))
                          : endpoint().send(to, tag_in(context(), kPause), {});
      if (!sent && sent.failure().kind == FailureKind::timeout && batch) {
        // A model that does not read holds up nobody else: its batch is kept for it.
        held_[worker] = std::move(batch);
        return {};
      }
      if (!sent && sent.failure().kind != FailureKind::peer_lost) return sent;
      if (!batch) paused_[worker] = 1;
      ++dealt_[worker];
    }
    return {};
  }

  std::uint64_t ahead_;

  // Workers.
  std::deque<Assignment> batches_;
  std::uint64_t asked_for_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t last_number_ = 0;
  bool stream_paused_ = false;

  // The generator, by worker.
  std::vector<std::uint64_t> dealt_;
  std::vector<std::uint64_t> asked_;
  std::vector<std::uint64_t> early_;             // Asked for by those that have finished already.
  std::vector<std::optional<Assignment>> held_;  // For those that have no room.
  std::vector<char> paused_;
  std::vector<char> done_;
};

}  // namespace

Description describe_all_to_all() {
  Description description;
  description.name = "all-to-all";
  description.summary = "a generator deals batches out; every model sends its gradients to all others and applies theirs in order";
  description.rule =
      "generator  deals the batches of one stream, one at a time, to whichever model asks\n"
      "model j    before a batch: w_j = w_j - lr g for every gradient g that has arrived; after it the same with its own, which it sends "
      "to all "
      "others\nGradients add up, they are not averaged, and there is no momentum; with optimizer=run every replica makes a step of the "
      "run's "
      "optimizer with every gradient instead";
  description.traffic = "per step: P - 1 messages of n floats from every worker; from the generator the numbers of a batch's samples";
  description.paper =
      "Tosi, Venkataraman and Theobald, TensAIR. Deviation: the generator sends the numbers of the samples, which every rank has, not the "
      "samples themselves.";
  description.options = {
      stream_optimiser_option("sgd"),
      Option::integer("ahead", 2, 1, 64, "batches that a model asks for before it needs them, the one it is at included"), result_option()};
  description.sends = Sends::gradients;
  description.places = Places::addressed;
  description.needs_generator = true;
  description.survives_lost_worker = true;
  description.own_models = true;
  description.opening = stream_opening;
  description.make = [](const Context& context) { return std::make_unique<AllToAll>(context); };
  return description;
}

}  // namespace starling::strategy
