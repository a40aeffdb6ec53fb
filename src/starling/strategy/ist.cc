// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Independent subnet training (Yuan et al., "Distributed learning of fully connected neural networks using independent subnet training",
// VLDB 2022; asynchronous, as iterations with masks, Bahi et al.). The hidden units of a perceptron are dealt to the workers; each trains
// what lies between its own units, a smaller network, and a coordinator, which trains too, merges the parts into the model. There are
// three modes, of which two wait:
//
//   sync        every J steps parts are gathered and merged, units are dealt anew, and parts of the merged model are handed out
//   sync-once   dealt once: every J steps parts are gathered and merged; what several share comes back merged
//   async       dealt once: every J steps a worker pushes its part, in one message, and goes on; the coordinator merges what has come
//               whenever it is at its own J-th step
//
// With masks = uniform everybody has all of the model and a say of 1/P, so that the very same merge is local SGD (sync modes).
//
// What is shared (output biases, or all with uniform masks) comes back to an asynchronous worker that has gone on meanwhile. It keeps its
// own progress: x = merged + (x - x at the push that was merged).
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "starling/base/error.h"
#include "starling/strategy/masks.h"
#include "starling/strategy/messages.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/run_optimiser.h"
#include "starling/strategy/shards.h"
#include "starling/strategy/subnets.h"
#include "starling/tensor/channel.h"

namespace starling::strategy {
namespace {

using fabric::Message;
using fabric::Rank;
using params::Stamp;
using tensor::Incoming;
using tensor::TensorView;

constexpr Rank kCoordinator = 0;

// To the workers: their part at the start of a stretch; what was merged; the model at the end.
constexpr fabric::Tag kFirstPart = 1;
constexpr fabric::Tag kMerged = 2;
constexpr fabric::Tag kResult = 3;
// To the coordinator. The value of its stamp is 1 if it is the last of a stretch.
constexpr fabric::Tag kPart = 4;

bool has_subnets(const Settings& settings) { return settings.choice("masks") == "subnets"; }
bool is_async(const Settings& settings) { return settings.choice("mode") == "async"; }
bool deals_anew(const Settings& settings, const Roles& roles) {
  return settings.choice("mode") == "sync" && has_subnets(settings) && roles.workers > 1;
}

params::Layout part_layout(const Settings& settings, const Roles& roles, const params::Layout& layout, int worker) {
  return has_subnets(settings) ? Subnets(layout, roles.workers, 0).part_layout(worker) : layout;
}

// What coordinator and other workers have in common.
class Ist : public Strategy {
 public:
  explicit Ist(Context context)
      : Strategy(std::move(context)),
        period_(static_cast<std::uint64_t>(settings().integer("period"))),
        async_(is_async(settings())),
        deals_anew_(deals_anew(settings(), this->context().roles)),
        optimiser_(this->context(),
                   parameters_of(part_layout(settings(), this->context().roles, this->context().layout, this->context().endpoint.rank()))),
        new_messages_(workers()) {
    if (has_subnets(settings())) subnets_.emplace(this->context().layout, workers(), this->context().seed);
  }

  Status exchange(const Step& step) override {
    steps_ = step.number;
    if (step.samples > 0 && step.finite) {
      optimiser_.step(step.weights, step.gradient, step.lr, step.first_stage);
      has_moved_ = true;
    }
    if (step.number % period_ != 0) return {};
    return async_ ? push(step.weights) : meet(step.weights);
  }

  void list_state(params::StateList& state) override {
    state.within("optimizer", [&](params::StateList& inner) { optimiser_.list_state(inner); });
    state.add("steps", steps_);
  }

 protected:
  // After every period_ steps.
  virtual Status push(std::span<float> weights) = 0;
  virtual Status meet(std::span<float> weights) = 0;

  const Settings& settings() const { return context().settings; }
  int workers() const { return context().roles.workers; }
  std::size_t model_size() const { return context().layout.parameter_count(); }
  const std::optional<Subnets>& subnets() const { return subnets_; }
  bool async() const { return async_; }
  bool has_started() const { return steps_ > 0; }
  // In the middle of a round of workers that wait for each other.
  bool in_a_round() const { return !async_ && steps_ % period_ != 0; }
  // How often units were dealt before.
  std::uint64_t deal() const { return deals_anew_ ? steps_ / period_ : 0; }

  // New units are a new problem: what the optimiser remembers belongs to others.
  bool begin_new_deal() {
    if (deals_anew_) optimiser_.reset();
    return deals_anew_;
  }

  // An update of this worker's own, if it has moved since the last; without one the number is 0.
  params::UpdateId produce_if_moved() { return has_moved_ ? produce() : params::UpdateId{}; }
  // The last update was for nothing: what has moved is still to be told.
  void not_delivered() { has_moved_ = true; }
  params::UpdateId produce() {
    has_moved_ = false;
    const params::UpdateId id = context().account.produced();
    endpoint().pass("push");
    return id;
  }

  fabric::Tag tag(fabric::Tag kind) const { return tag_in(context(), kind); }

  Status send(Rank to, fabric::Tag kind, std::span<const float> values, const Stamp& stamp,
              fabric::Deadline deadline = fabric::Deadline::standard()) {
    return tensor::Channel(endpoint(), {.tag = tag(kind)}).send(to, TensorView::of(values), stamp, deadline);
  }

  // A message as what it says; nothing for one that a fault has doubled. Precondition (checked): it has this many floats.
  Result<std::optional<Incoming>> read(Message message, std::size_t size) {
    if (!new_messages_.is_new(message)) return std::optional<Incoming>();
    tensor::Channel channel(endpoint(), {.tag = message.tag});
    Result<Incoming> incoming = channel.parse(std::move(message));
    if (!incoming) return incoming.failure();
    const std::size_t sent = incoming->tensor.as<float>().size();
    STARLING_CHECK(sent == size, fmt::format("rank {} sent {} floats instead of {}", incoming->source, sent, size));
    return std::optional<Incoming>(std::move(*incoming));
  }

  // Waits as long as others get on. What the coordinator told before it sent the result is read and left: unread, it would take the room
  // that the result needs.
  Result<Incoming> receive(Rank from, fabric::Tag kind, std::size_t size) {
    for (;;) {
      Result<Message> message =
          context().patience.receive(endpoint(), kind == kResult ? fabric::from(from) : fabric::from(from, tag(kind)));
      if (!message) return message.failure();
      if (message->tag != tag(kind)) continue;
      Result<std::optional<Incoming>> incoming = read(std::move(*message), size);
      if (!incoming) return incoming.failure();
      if (*incoming) return std::move(**incoming);
    }
  }

 private:
  std::uint64_t period_;
  bool async_;
  bool deals_anew_;
  RunOptimiser optimiser_;
  std::optional<Subnets> subnets_;
  NewMessages new_messages_;
  std::uint64_t steps_ = 0;
  bool has_moved_ = false;  // Since the last push.
};

// Worker 0. Its own part needs no messages.
class Coordinator final : public Ist {
 public:
  using Ist::Ist;

  Status start(std::span<float> weights, std::span<const float> model) override {
    model_.assign(model.begin(), model.end());
    deal_masks();
    if (!has_started() && settings().choice("unowned") == "zero") masks_->clear_unowned(model_);
    parts_.resize(static_cast<std::size_t>(workers()));
    expect_all();
    for (Rank worker = 0; worker < workers(); ++worker) {
      const std::span<float> part = resized(part_of(worker), (*masks_)[worker].size());
      (*masks_)[worker].take(model_, part);
      if (worker != kCoordinator) STARLING_TRY(unless_lost(send(worker, kFirstPart, part, stamp_for(worker, 0))));
    }
    if (!in_a_round()) own_mask().take(model_, weights);
    return {};
  }

  Status finish(std::span<float> weights, std::span<float> model) override {
    if (async()) {
      const params::UpdateId id = produce_if_moved();
      if (id.number > 0) take_own_part(id, weights);
      STARLING_TRY(wait_for_last_parts());
      expect_all();
      mix();
      own_mask().take(model_, weights);
    }
    std::copy(model_.begin(), model_.end(), model.begin());
    // Replicas that are in the middle of a round go on from where they are; the result is what a merge would give now.
    if (in_a_round()) {
      std::copy(weights.begin(), weights.end(), part_of(kCoordinator).begin());
      STARLING_TRY(gather(false));
      masks_->merge(parts_, model);
    }
    for (Rank worker = 1; worker < workers(); ++worker) STARLING_TRY(unless_lost(send(worker, kResult, model, stamp_for(worker, 0))));
    return {};
  }

  // What has been merged. Nobody waits.
  Status peek(std::span<const float> /*weights*/, std::span<float> model) override {
    std::copy(model_.begin(), model_.end(), model.begin());
    return {};
  }

 private:
  Status meet(std::span<float> weights) override {
    take_own_part(produce(), weights);
    STARLING_TRY(gather(true));
    masks_->merge(parts_, model_);
    const bool anew = begin_new_deal();
    if (anew) deal_masks();
    for (Rank worker = 1; worker < workers(); ++worker) {
      if (anew) (*masks_)[worker].take(model_, resized(part_of(worker), (*masks_)[worker].size()));
      STARLING_TRY(send(worker, kMerged, anew ? std::span<const float>(part_of(worker)) : shared_with(worker), {}));
    }
    own_mask().take(model_, weights);
    return {};
  }

  // What has come is merged; who sent it hears of it, if there is room for that, and goes on in either case.
  Status push(std::span<float> weights) override {
    take_own_part(produce(), weights);
    std::vector<std::uint64_t> merged(parts_.size());
    while (std::optional<Message> message = endpoint().poll(fabric::tagged(tag(kPart)))) {
      STARLING_TRY(take_part(std::move(*message), merged));
    }
    mix();
    own_mask().take(model_, weights);
    for (Rank worker = 1; worker < workers(); ++worker) tell_merged(worker, merged[static_cast<std::size_t>(worker)]);
    return {};
  }

  void deal_masks() { masks_.emplace(subnets() ? subnets()->deal(deal()) : Masks::uniform(model_size(), workers())); }

  const Mask& own_mask() const { return (*masks_)[kCoordinator]; }
  std::vector<float>& part_of(Rank worker) { return parts_[static_cast<std::size_t>(worker)]; }

  void take_own_part(const params::UpdateId& id, std::span<const float> weights) {
    context().account.applied_fresh(id);
    std::copy(weights.begin(), weights.end(), part_of(kCoordinator).begin());
    own_mask().place(weights, model_);
  }

  void mix() { masks_->mix(parts_, model_); }

  static std::span<float> resized(std::vector<float>& values, std::size_t size) {
    values.resize(size);
    return values;
  }

  std::span<const float> shared_with(Rank worker) {
    const Mask& mask = (*masks_)[worker];
    mask.take_shared(model_, resized(shared_, mask.shared_size()));
    return shared_;
  }

  // The parts of all others, where everybody waits: in one merge nothing is stale.
  Status gather(bool updates) {
    for (Rank worker = 1; worker < workers(); ++worker) {
      Result<Incoming> incoming = receive(worker, kPart, part_of(worker).size());
      if (!incoming) return incoming.failure();
      const std::span<const float> values = incoming->tensor.as<float>();
      std::copy(values.begin(), values.end(), part_of(worker).begin());
      if (updates) context().account.applied_fresh(incoming->stamp.id);
    }
    return {};
  }

  // One that has come by itself. `merged` is the latest update of each worker since it was last told.
  Status take_part(Message message, std::vector<std::uint64_t>& merged) {
    const Rank worker = message.source;
    Result<std::optional<Incoming>> incoming = read(std::move(message), part_of(worker).size());
    if (!incoming) return incoming.failure();
    if (!*incoming) return {};
    const Stamp& stamp = (*incoming)->stamp;
    const std::span<const float> values = (*incoming)->tensor.as<float>();
    if (stamp.id.number > 0) {
      context().account.applied(stamp, version(), context().account.contents());
      std::copy(values.begin(), values.end(), part_of(worker).begin());
      (*masks_)[worker].place(values, model_);
      merged[static_cast<std::size_t>(worker)] = stamp.id.number;
    }
    if (stamp.value == 1) is_done_[static_cast<std::size_t>(worker)] = 1;
    return {};
  }

  void tell_merged(Rank worker, std::uint64_t number) {
    if (number == 0) return;
    // A reply that cannot be sent at once is not sent: a later one will do.
    (void)send(worker, kMerged, shared_with(worker), stamp_for(worker, number), fabric::Deadline::after(Duration::zero()));
  }

  void expect_all() {
    is_done_.assign(parts_.size(), 0);
    is_done_[kCoordinator] = 1;
  }

  // Until every worker that is still there has sent its last. Those that still train are merged meanwhile.
  Status wait_for_last_parts() {
    std::size_t seen = 0;
    for (;;) {
      const std::vector<fabric::Departure> departures = endpoint().departures();
      for (; seen < departures.size(); ++seen) STARLING_TRY(take_what_is_left_of(departures[seen].rank));
      if (std::all_of(is_done_.begin(), is_done_.end(), [](char done) { return done != 0; })) return {};
      fabric::Filter filter = fabric::tagged(tag(kPart));
      filter.departures_seen = seen;
      Result<Message> message = context().patience.receive(endpoint(), filter);
      if (!message && (message.failure().kind != FailureKind::peer_lost || endpoint().departures().size() == seen))
        return message.failure();
      if (!message) continue;
      const Rank worker = message->source;
      std::vector<std::uint64_t> merged(parts_.size());
      STARLING_TRY(take_part(std::move(*message), merged));
      if (is_done_[static_cast<std::size_t>(worker)] != 0) continue;
      mix();
      tell_merged(worker, merged[static_cast<std::size_t>(worker)]);
    }
  }

  // A worker that is gone: what it had sent counts, and its part stays as that left it.
  Status take_what_is_left_of(Rank rank) {
    if (rank >= workers()) return {};
    std::vector<std::uint64_t> merged(parts_.size());
    for (;;) {
      Result<Message> message = context().patience.receive(endpoint(), fabric::from(rank, tag(kPart)));
      if (!message && message.failure().kind != FailureKind::peer_lost) return message.failure();
      if (!message) break;
      STARLING_TRY(take_part(std::move(*message), merged));
    }
    is_done_[static_cast<std::size_t>(rank)] = 1;
    return {};
  }

  std::uint64_t version() { return context().account.contents().size(); }

  // What the model contains; `number` is the latest update of that worker in it.
  Stamp stamp_for(Rank worker, std::uint64_t number) {
    return {.id = {.origin = worker, .number = number}, .version = version(), .contents = context().account.contents()};
  }

  // Only who waits for all needs all.
  Status unless_lost(Status status) const {
    const bool lost = !status.ok() && status.failure().kind == FailureKind::peer_lost;
    return lost && async() ? Status{} : std::move(status);
  }

  std::optional<Masks> masks_;             // Of the present deal.
  std::vector<float> model_;               // What has been merged.
  std::vector<std::vector<float>> parts_;  // By worker: the latest that has come.
  std::vector<char> is_done_;              // By worker: its last part of this stretch has come, or it is gone.
  std::vector<float> shared_;
};

class Member final : public Ist {
 public:
  using Ist::Ist;

  Status start(std::span<float> weights, std::span<const float> /*model*/) override {
    deal_mask();
    Result<Incoming> first = receive(kCoordinator, kFirstPart, mask_.size());
    if (!first) return first.failure();
    if (!in_a_round()) copy(*first, weights);
    known_ = std::move(first->stamp);
    return {};
  }

  Status finish(std::span<float> weights, std::span<float> model) override {
    if (async()) {
      STARLING_TRY(send_part(produce_if_moved(), true, weights));
    } else if (in_a_round()) {
      STARLING_TRY(send(kCoordinator, kPart, weights, {}));
    }
    Result<Incoming> result = receive(kCoordinator, kResult, model_size());
    if (!result) return result.failure();
    copy(*result, model);
    if (!async()) return {};
    // Nobody has gone on since: what comes back is simply the merged part.
    mask_.take(model, weights);
    known_ = std::move(result->stamp);
    pushed_.clear();
    return {};
  }

  // The rest of the model is not known here, and is left as it was.
  Status peek(std::span<const float> weights, std::span<float> model) override {
    for (std::size_t i = 0; i < mask_.size(); ++i) model[mask_.index(i)] = weights[i];
    return {};
  }

 private:
  // A push that may not have been merged yet.
  struct Pushed {
    std::uint64_t number = 0;
    std::vector<float> shared{};  // As pushed, and moved along when a merge of an earlier push moved the weights.
  };

  Status meet(std::span<float> weights) override {
    STARLING_TRY(send(kCoordinator, kPart, weights, {.id = produce()}));
    const bool anew = begin_new_deal();
    if (anew) deal_mask();
    Result<Incoming> merged = receive(kCoordinator, kMerged, anew ? mask_.size() : mask_.shared_size());
    if (!merged) return merged.failure();
    if (anew) copy(*merged, weights);
    if (!anew) mask_.write_shared(merged->tensor.as<float>(), weights);
    return {};
  }

  Status push(std::span<float> weights) override {
    while (std::optional<Message> message = endpoint().poll(fabric::from(kCoordinator, tag(kMerged)))) {
      Result<std::optional<Incoming>> merged = read(std::move(*message), mask_.shared_size());
      if (!merged) return merged.failure();
      if (*merged) take_merged(**merged, weights);
    }
    return send_part(produce(), false, weights);
  }

  void deal_mask() {
    mask_ = subnets() ? subnets()->mask(rank(), deal()) : Mask::uniform(model_size(), static_cast<float>(1.0 / workers()));
  }

  static void copy(const Incoming& from, std::span<float> to) {
    const std::span<const float> values = from.tensor.as<float>();
    std::copy(values.begin(), values.end(), to.begin());
  }

  // The whole part in one message: what arrives is of one moment.
  Status send_part(const params::UpdateId& id, bool last, std::span<const float> weights) {
    Stamp stamp = known_;
    stamp.id = id;
    stamp.value = last ? 1 : 0;
    if (last) return send_last_part(weights, stamp);
    Status sent = send(kCoordinator, kPart, weights, stamp, fabric::Deadline::after(Duration::zero()));
    if (!sent && sent.failure().kind == FailureKind::timeout) {
      // Nobody waits: the next part will say more than this one.
      context().account.dropped(id, ledger::kNoRoom);
      not_delivered();
      return {};
    }
    if (!sent || id.number == 0) return sent;
    note_own(id.number);
    Pushed& pushed = pushed_.emplace_back();
    pushed.number = id.number;
    pushed.shared.resize(mask_.shared_size());
    mask_.copy_shared(weights, pushed.shared);
    return {};
  }

  // As long as it takes: the coordinator reads when it comes to its own end.
  Status send_last_part(std::span<const float> weights, const Stamp& stamp) {
    fabric::LongWait wait(context().patience, endpoint());
    for (;;) {
      Status sent = send(kCoordinator, kPart, weights, stamp, fabric::Deadline::after(context().patience.slice));
      if (sent || sent.failure().kind != FailureKind::timeout) return sent;
      if (!wait.goes_on()) return wait.given_up(sent.failure());
    }
  }

  // The coordinator has merged a push of ours: the weights move from what was pushed to what came of it.
  void take_merged(const Incoming& merged, std::span<float> weights) {
    while (!pushed_.empty() && pushed_.front().number < merged.stamp.id.number) pushed_.pop_front();
    STARLING_CHECK(!pushed_.empty() && pushed_.front().number == merged.stamp.id.number,
                   fmt::format("worker {} has not pushed update {}, which was merged", rank(), merged.stamp.id.number));
    const std::vector<float> base = std::move(pushed_.front().shared);
    pushed_.pop_front();
    const std::span<const float> values = merged.tensor.as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      float& weight = weights[mask_.shared(i)];
      weight = values[i] + (weight - base[i]);
      // The move is no progress of ours: later pushes shall not count it as such.
      for (Pushed& later : pushed_) later.shared[i] += values[i] - base[i];
    }
    known_ = merged.stamp;
    for (const Pushed& later : pushed_) note_own(later.number);
  }

  // What is in our weights: what we have heard of, and our own.
  void note_own(std::uint64_t number) {
    known_.contents[rank()].insert(number);
    ++known_.version;
  }

  Mask mask_;    // Of the present deal.
  Stamp known_;  // Version and contents of the weights.
  std::deque<Pushed> pushed_;
};

std::string opening(const Settings& settings, const Roles& roles, const params::Layout& layout) {
  if (!has_subnets(settings))
    return fmt::format("ist: each of {} workers has the whole model, and a say of 1/{} in it", roles.workers, roles.workers);
  const Masks masks = Subnets(layout, roles.workers, 0).deal(0);
  if (masks.owned() == masks.size()) return fmt::format("ist: {} subnets own all of {} weights", roles.workers, masks.size());
  const double percent = 100 * static_cast<double>(masks.owned()) / static_cast<double>(masks.size());
  const char* start = settings.choice("unowned") == "zero" ? "is zero" : "keeps its initial values";
  const bool anew = deals_anew(settings, roles);
  return fmt::format("ist: {} subnets own {:.1f} % of {} weights{}; the rest {}{}", roles.workers, percent, masks.size(),
                     anew ? " at a time" : "", start, anew ? " until it is dealt" : "");
}

}  // namespace

Description describe_ist() {
  Description description;
  description.name = "ist";
  description.summary = "independent subnets: hidden units are dealt to the workers, each trains what lies between its own";
  description.rule =
      "deal     every hidden unit to one worker, at random; worker k has the weights between its own units\n"
      "worker   x_k = optimizer step with the gradient of its subnet; every J steps x_k goes to the coordinator, worker 0\n"
      "merge    x = sum of E_k x_k + R x, with diagonal E_k: 1 for what k owns alone, 1/P for what all share; R: what nobody owns\n"
      "mode     sync: all wait for the merge, and units are dealt anew. sync-once: all wait, dealt once. async: nobody waits, dealt once;\n"
      "         x_k keeps its own progress: shared x_k = merged + (x_k - x_k when it was pushed)";
  description.traffic =
      "every J steps per worker: its part to the coordinator, about n / P^2 to n / P floats; back: in mode sync a part, else what is "
      "shared\n"
      "(the biases of the outputs; all of it where masks are uniform)";
  description.paper =
      "Yuan et al. 2022 (sync); Bahi et al. (dealt once, asynchronous, masks). The state of the optimizer begins anew with every deal.";
  description.options = {
      Option::choice("mode", "async", {"sync", "sync-once", "async"}, "who waits for whom, and whether units are dealt anew"),
      Option::integer("period", 32, 1, 1'000'000'000, "J: steps from one exchange to the next"),
      Option::choice("masks", "subnets", {"subnets", "uniform"}, "a subnet for each worker, or the whole model and a say of 1/P"),
      Option::choice("unowned", "zero", {"keep", "zero"}, "weights that the first deal gives to nobody: keep initial values, or zero")};
  description.sends = Sends::weights;
  description.places = Places::centre;
  description.trains_parts = true;
  description.lockstep_when = [](const Settings& settings) { return !is_async(settings); };
  description.survives_lost_worker = true;  // In mode async; in the others all wait for it, and fail.
  description.part_layout = part_layout;
  description.opening = opening;
  description.make = [](Context context) -> std::unique_ptr<Strategy> {
    if (context.endpoint.rank() == kCoordinator) return std::make_unique<Coordinator>(std::move(context));
    return std::make_unique<Member>(std::move(context));
  };
  return description;
}

}  // namespace starling::strategy
