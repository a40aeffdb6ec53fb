// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/parameter_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "starling/base/error.h"
#include "starling/collective/collective.h"
#include "starling/collective/meeting.h"
#include "starling/strategy/coded_sum.h"
#include "starling/strategy/shards.h"

namespace starling::strategy {
namespace {

using fabric::Message;
using fabric::PeerState;
using fabric::Rank;
using params::Stamp;
using tensor::Channel;
using tensor::Incoming;
using tensor::TensorView;

// Of the messages to servers, and of their replies.
constexpr fabric::Tag kFirstWeights = 1;
constexpr fabric::Tag kPush = 2;
constexpr fabric::Tag kPushAndPull = 3;
constexpr fabric::Tag kPull = 4;
constexpr fabric::Tag kFinish = 5;
constexpr fabric::Tag kReply = 6;
constexpr fabric::Tag kPeek = 7;

}  // namespace

struct ParameterServer::Part {
  std::size_t begin = 0;
  std::size_t size = 0;
  Rank server = 0;
  std::unique_ptr<codec::Codec> codec;
  std::unique_ptr<Channel> push;
  std::unique_ptr<Channel> push_and_pull;
  std::unique_ptr<Channel> reply;
  Stamp pulled{};  // Version and contents of this part of the weights.
};

ParameterServer::ParameterServer(Context context)
    : Strategy(std::move(context)),
      new_messages_(this->context().roles.ranks()),
      clocks_(static_cast<std::size_t>(this->context().roles.workers)),
      finished_(clocks_.size()),
      at_work_(clocks_.size()),
      waiting_(clocks_.size()),
      stalled_(clocks_.size()) {
  const Roles& roles = this->context().roles;
  if (roles.is_worker(rank())) {
    for (int server = 0; server < roles.servers; ++server) add_part(server);
    return;
  }
  const collective::Slice slice = collective::slice_of(parameter_count(), roles.servers, rank() - roles.workers);
  part_layout_ = part_of(this->context().layout, slice.begin, slice.size);
  if (this->context().codec != "fp32") decoder_ = codec::make_codec(this->context().codec, codec_context(this->context(), part_layout_));
  incoming_.emplace(endpoint(),
                    tensor::ChannelOptions{.tag = tag_in(this->context(), kPush), .codec = decoder_.get(), .codec_values = slice.size});
  replies_.emplace(endpoint(), tensor::ChannelOptions{.tag = tag_in(this->context(), kReply)});
}

ParameterServer::~ParameterServer() = default;

void ParameterServer::add_part(int server) {
  const collective::Slice slice = collective::slice_of(parameter_count(), context().roles.servers, server);
  Part& part = parts_.emplace_back();
  part.begin = slice.begin;
  part.size = slice.size;
  part.server = context().roles.server(server);
  if (context().codec != "fp32") {
    part.codec = codec::make_codec(context().codec, codec_context(context(), part_of(context().layout, slice.begin, slice.size)));
  }
  part.push = std::make_unique<Channel>(
      endpoint(), tensor::ChannelOptions{.tag = tag_in(context(), kPush), .codec = part.codec.get(), .codec_values = part.size});
  part.push_and_pull = std::make_unique<Channel>(
      endpoint(), tensor::ChannelOptions{.tag = tag_in(context(), kPushAndPull), .codec = part.codec.get(), .codec_values = part.size});
  part.reply = std::make_unique<Channel>(endpoint(), tensor::ChannelOptions{.tag = tag_in(context(), kReply)});
}

Status ParameterServer::start(std::span<float> weights, std::span<const float> model) {
  if (collective::is_first_alive(endpoint())) {
    for (const Part& part : parts_) {
      Channel first(endpoint(), {.tag = tag_in(context(), kFirstWeights)});
      STARLING_TRY(first.send(part.server, TensorView::of(model.subspan(part.begin, part.size))));
    }
  }
  return pull(weights);
}

Status ParameterServer::push(const params::UpdateId& id, std::span<const float> update, const Step& step) {
  for (Part& part : parts_) {
    if (part.codec) part.codec->set_progress(step.epoch);
    Stamp stamp = part.pulled;
    stamp.id = id;
    stamp.value = with_stage(step);
    STARLING_TRY(part.push->send(part.server, TensorView::of(update.subspan(part.begin, part.size)), stamp));
    // The worker's weights contain what it has pushed, and will when it arrives there.
    part.pulled.contents[rank()].insert(id.number);
    ++part.pulled.version;
  }
  request_.id = id;
  return {};
}

Status ParameterServer::push_and_pull(const params::UpdateId& id, std::span<const float> update, const Step& step, std::span<float> weights,
                                      const std::shared_ptr<const void>& keeper) {
  for (Part& part : parts_) {
    if (part.codec) part.codec->set_progress(step.epoch);
    Stamp& stamp = part.pulled;  // It is replaced by the reply's.
    stamp.id = id;
    stamp.value = with_stage(step);
    // The reply comes after the update was applied, so the memory need only stay as it is until then.
    const TensorView view = TensorView::of(update.subspan(part.begin, part.size));
    STARLING_TRY(keeper ? part.push_and_pull->send(part.server, tensor::Tensor::adopt(view, [keeper] {}), stamp)
                        : part.push_and_pull->lend(part.server, view, stamp));
  }
  request_.id = id;
  return receive_replies(weights);
}

Status ParameterServer::pull(std::span<float> weights, const params::UpdateId& clock) {
  if (clock.number > 0) request_.id = clock;
  STARLING_TRY(send_to_all(kPull));
  return receive_replies(weights);
}

Status ParameterServer::send_to_all(fabric::Tag tag) {
  for (const Part& part : parts_) {
    Channel channel(endpoint(), {.tag = tag_in(context(), tag)});
    STARLING_TRY(channel.send(part.server, TensorView::of(std::span<const float>()), request_));
  }
  return {};
}

Status ParameterServer::receive_replies(std::span<float> weights) {
  std::uint64_t newest = 0;
  std::uint64_t oldest = ~std::uint64_t{0};
  for (Part& part : parts_) {
    const fabric::Filter filter = fabric::from(part.server, tag_in(context(), kReply));
    Result<Message> message = context().patience.receive(endpoint(), filter);
    while (message && !new_messages_.is_new(*message)) message = context().patience.receive(endpoint(), filter);
    if (!message) return message.failure();
    Result<Incoming> incoming = part.reply->parse(std::move(*message));
    if (!incoming) return incoming.failure();
    const std::span<const float> values = incoming->tensor.as<float>();
    STARLING_CHECK(values.size() == part.size,
                   fmt::format("server {} sent {} floats instead of {}", part.server, values.size(), part.size));
    std::copy(values.begin(), values.end(), weights.begin() + static_cast<std::ptrdiff_t>(part.begin));
    part.pulled = std::move(incoming->stamp);
    newest = std::max(newest, part.pulled.version);
    oldest = std::min(oldest, part.pulled.version);
  }
  context().account.pulled(newest - oldest);
  return {};
}

Status ParameterServer::finish(std::span<float> weights, std::span<float> model) {
  STARLING_TRY(flush(weights));
  STARLING_TRY(send_to_all(kFinish));
  return receive_replies(model);
}

Status ParameterServer::peek(std::span<const float> /*weights*/, std::span<float> model) {
  // The versions belong to the weights of the replica, which stay as they are.
  std::vector<Stamp> before;
  before.reserve(parts_.size());
  for (const Part& part : parts_) before.push_back(part.pulled);
  STARLING_TRY(send_to_all(kPeek));
  STARLING_TRY(receive_replies(model));
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].pulled = std::move(before[i]);
  return {};
}

void ParameterServer::list_state(params::StateList& state) {
  if (!context().roles.is_worker(rank())) return list_server_state(state);
  list_worker_state(state);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].codec) state.within(fmt::format("codec{}", i), [&](params::StateList& inner) { parts_[i].codec->list_state(inner); });
  }
}

// The server's side.

Status ParameterServer::start_serving() {
  STARLING_TRY(receive_first_weights());
  if (!answers_with_old_weights()) staleness_rule_ = context().settings.choice("staleness_lr");
  version_ = context().account.contents().size();
  for (int worker = 0; worker < context().roles.workers; ++worker) {
    clocks_[static_cast<std::size_t>(worker)] = context().account.contents()[worker].largest();
  }
  return {};
}

// From the first worker that is there. One that was lost earlier has sent nothing; one that is lost now leaves nobody who would send.
Status ParameterServer::receive_first_weights() {
  Channel first(endpoint(), {.tag = tag_in(context(), kFirstWeights)});
  for (Rank worker = 0;; ++worker) {
    const bool was_alive = endpoint().peer(worker) == PeerState::alive;
    Result<Incoming> incoming = first.receive(worker);
    if (incoming) {
      weights_ = std::move(incoming->tensor);
      return {};
    }
    const bool is_last = worker + 1 == context().roles.workers;
    if (was_alive || is_last || incoming.failure().kind != FailureKind::peer_lost) return incoming.failure();
  }
}

// False if nobody is.
bool ParameterServer::update_those_at_work() {
  clocks_at_work_.clear();
  for (std::size_t worker = 0; worker < at_work_.size(); ++worker) {
    at_work_[worker] = static_cast<char>(finished_[worker] == 0 && endpoint().peer(static_cast<Rank>(worker)) == PeerState::alive);
    if (at_work_[worker] != 0) clocks_at_work_.push_back(clocks_[worker]);
  }
  return !clocks_at_work_.empty();
}

Status ParameterServer::serve() {
  for (;;) {
    const fabric::Filter filter{.departures_seen = endpoint().departures().size()};
    const bool more_will_come = update_those_at_work();
    STARLING_TRY(do_what_can_be_done());
    if (!more_will_come) break;
    Result<Message> message = context().patience.receive(endpoint(), filter);
    if (message) {
      STARLING_TRY(handle(std::move(*message)));
    } else if (message.failure().kind != FailureKind::peer_lost) {
      return message.failure();
    }
  }
  for (Rank worker = 0; worker < context().roles.workers; ++worker) {
    if (std::exchange(finished_[static_cast<std::size_t>(worker)], 0) != 0) STARLING_TRY(reply(worker, weights_.share()));
  }
  return {};
}

Status ParameterServer::handle(Message message) {
  if (!new_messages_.is_new(message) || !is_of_this_stretch(context(), message.tag)) return {};
  const auto worker = static_cast<std::size_t>(message.source);
  const fabric::Tag tag = message.tag % kTags;
  Result<Incoming> incoming = incoming_->parse(std::move(message));
  if (!incoming) return incoming.failure();
  if (incoming->stamp.id.number > 0) clocks_[worker] = std::max(clocks_[worker], incoming->stamp.id.number);
  if (tag == kPush || tag == kPushAndPull) {
    stalled_[worker] = {std::move(*incoming), tag, ++arrivals_};
  } else if (tag == kPull) {
    waiting_[worker] = 1;
  } else if (tag == kPeek) {
    return reply(static_cast<Rank>(worker), weights_.share(), false);
  } else if (tag == kFinish) {
    finished_[worker] = 1;
  }
  // First weights can come twice, where the worker that sent them was lost and the next did not know.
  return {};
}

// Applies what may be applied and answers whom may be answered.
Status ParameterServer::do_what_can_be_done() {
  for (bool again = true; again;) {
    again = false;
    if (std::optional<Stalled> next = next_to_apply()) {
      STARLING_TRY(take_up(std::move(next->incoming), next->tag));
      again = true;
    }
    for (std::size_t worker = 0; worker < waiting_.size() && !again; ++worker) {
      if (waiting_[worker] == 0 || must_wait(clocks_[worker], clocks_at_work_)) continue;
      waiting_[worker] = 0;
      STARLING_TRY(reply(static_cast<Rank>(worker), weights_.share()));
      again = true;  // A reply may be what a stalled push waits for.
    }
  }
  return {};
}

// Of the pushes that may be applied now, the one that arrived first.
std::optional<ParameterServer::Stalled> ParameterServer::next_to_apply() {
  const std::optional<Rank> turn = whose_turn(at_work_);
  std::optional<Stalled>* first = nullptr;
  for (std::size_t worker = 0; worker < stalled_.size(); ++worker) {
    std::optional<Stalled>& stalled = stalled_[worker];
    if (!stalled || (turn && *turn != static_cast<Rank>(worker)) || must_stall(stalled->incoming.stamp.id, at_work_)) continue;
    if (first == nullptr || stalled->arrival < (*first)->arrival) first = &stalled;
  }
  return first == nullptr ? std::nullopt : std::exchange(*first, std::nullopt);
}

Status ParameterServer::take_up(Incoming incoming, fabric::Tag tag) {
  const Rank worker = incoming.source;
  if (tag == kPushAndPull && answers_with_old_weights()) {
    tensor::Tensor old = weights_.share();
    apply_push(incoming);
    return reply(worker, std::move(old));
  }
  apply_push(incoming);
  if (tag == kPushAndPull) waiting_[static_cast<std::size_t>(worker)] = 1;
  return {};
}

void ParameterServer::apply_push(const Incoming& incoming) {
  const std::span<const float> values = incoming.tensor.as<float>();
  STARLING_CHECK(values.size() == weights_.size(),
                 fmt::format("worker {} pushed {} floats instead of {}", incoming.source, values.size(), weights_.size()));
  const Stamp& stamp = incoming.stamp;
  // What a worker is answered with the old weights for is computed here and now, from the weights as they are.
  const std::uint64_t staleness = answers_with_old_weights() ? 0 : version_ - stamp.version;
  const double scale = staleness == 0 ? 1 : staleness_scale(staleness_rule_, staleness);
  const double lr = std::abs(stamp.value);
  if (answers_with_old_weights()) {
    context().account.applied_fresh(stamp.id);
  } else {
    context().account.applied(stamp, version_, context().account.contents());
  }
  apply({.worker = incoming.source,
         .values = values,
         .stamp = stamp,
         .staleness = staleness,
         .lr = scale == 1 ? lr : lr * scale,
         .scale = scale,
         .first_stage = std::signbit(stamp.value)},
        weights_.writable_as<float>());
  ++version_;
}

Status ParameterServer::reply(Rank worker, tensor::Tensor weights, bool to_compute_on) {
  const Stamp stamp{.version = version_, .contents = context().account.contents()};
  Status sent = replies_->send(worker, std::move(weights), stamp);
  if (!sent && sent.failure().kind == FailureKind::peer_lost) return {};  // Its departure is heard of as any other.
  if (sent && to_compute_on) pulled(worker, weights_);
  return sent;
}

}  // namespace starling::strategy
