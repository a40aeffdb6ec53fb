// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs one strategy on a fabric, without data and model: gradients come from a function of worker, step and weights. What happened in which
// order is noted, so that a serial reference can replay it.
//
//   Trial trial{.strategy = "async", .fabric = "sim", .workers = 3, .servers = 1, .steps = 9};
//   Outcome outcome = run_trial(trial);
//   reference::Result expected = reference::async(outcome.schedule(trial));
//
// How the order is known. A server is one thread: what it receives, and to whom it replies, in that order, is the order in which it applies
// and hands out. A window is not: on threads its operations are carried out one at a time here, under a mutex, and in processes under the
// lock of a file; in the simulator one takes effect half-way between its call and its return, because the links are equally long in both
// directions. What ranks in several processes have noted is put together at the end, by the clock of the machine they are on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "contract/fabrics.h"
#include "contract/gathered.h"
#include "contract/strategy_references.h"
#include "starling/base/random.h"
#include "starling/collective/collective.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"
#include "starling/strategy/messages.h"
#include "starling/strategy/registry.h"

namespace starling::strategy {

// Everything that is done to a server or to a window, by arrival. One for all ranks of a run that are in this process.
class Recorder {
 public:
  explicit Recorder(bool one_process) : one_process_(one_process) {}

  // A server has taken this message, as the only one to which it will reply next, or has replied. The tags are those of
  // parameter_server.cc.
  void received(int worker, fabric::Tag tag) {
    const std::lock_guard lock(mutex_);
    if (tag == kPush || tag == kPushAndPull) events_.push_back({stamp(), {worker, reference::Kind::push}});
    asked_[worker] = tag;
  }
  void replied(int worker) {
    const std::lock_guard lock(mutex_);
    const fabric::Tag asked = asked_[worker];
    if (asked == kPushAndPull || asked == kPull) events_.push_back({stamp(), {worker, reference::Kind::pull}});
    if (asked == kPushAndPull) exchanges_.push_back({worker, reference::Kind::exchange});
  }

  // A window.
  void took_effect(Time time, int worker, reference::Kind kind) {
    const std::lock_guard lock(mutex_);
    events_.push_back({time, {worker, kind}});
  }
  // Runs the operation while nobody else, in this process or another, runs one.
  template <class Operation>
  std::invoke_result_t<Operation> alone(Operation operation, int worker, reference::Kind kind) {
    const std::lock_guard lock(window_mutex_);
    const std::optional<GatheringLock> file_lock = one_process_ ? std::nullopt : std::optional<GatheringLock>(std::in_place);
    auto result = operation();
    took_effect(stamp(), worker, kind);
    return result;
  }
  void added(int worker, std::size_t offset, std::size_t size) {
    const std::lock_guard lock(mutex_);
    additions_.push_back({worker, offset, size});
  }

  // A worker that talks to other workers: noted before a model is sent and after one is received, so that a push comes before its merge.
  void talked(int worker, reference::Kind kind, int peer = -1) {
    const std::lock_guard lock(mutex_);
    events_.push_back({stamp(), {worker, kind, peer}});
  }
  // The last push of this worker found no room.
  void take_back(int worker) {
    const std::lock_guard lock(mutex_);
    const auto last = std::find_if(events_.rbegin(), events_.rend(), [&](const Timed& one) { return one.event.worker == worker; });
    events_.erase(std::next(last).base());
  }

  // Rank `rank` is about to exchange its gradient `step`, and takes messages until it is about to exchange the next.
  void at_step(int rank, int step) {
    const std::lock_guard lock(mutex_);
    steps_[rank] = step;
  }
  void took(int rank, int source) {
    const std::lock_guard lock(mutex_);
    taken_[rank].push_back({steps_[rank], source});
  }
  std::map<int, std::vector<reference::Taken>> taken() const { return taken_; }

  std::vector<reference::Event> events() const {
    std::vector<Timed> sorted = events_;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Timed& a, const Timed& b) { return a.time < b.time; });
    std::vector<reference::Event> result;
    for (const Timed& event : sorted) result.push_back(event.event);
    return result;
  }
  struct Addition {
    int worker = 0;
    std::size_t offset = 0;
    std::size_t size = 0;

    bool operator==(const Addition&) const = default;
  };
  // To windows, by worker as it made them.
  const std::vector<Addition>& additions() const { return additions_; }
  // Of a worker and a centre at a server: when the server has replied.
  const std::vector<reference::Event>& exchanges() const { return exchanges_; }

  static constexpr fabric::Tag kPush = 2;
  static constexpr fabric::Tag kPushAndPull = 3;
  static constexpr fabric::Tag kPull = 4;
  static constexpr fabric::Tag kReply = 6;
  static constexpr fabric::Tag kGradient = 1;  // Of gradient_streams.cc.

  // What all processes have noted, to be put together.
  void add_to(Gathering& gathering, int ranks) {
    gathering.add(events_);
    gathering.add(exchanges_);
    gathering.add(additions_);
    for (int rank = 0; rank < ranks; ++rank) gathering.add(taken_[rank]);
  }

 private:
  struct Timed {
    Time time;  // Only of windows, unless there are several processes.
    reference::Event event;
  };

  Time stamp() const {
    return one_process_ ? Time::zero() : std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
  }

  const bool one_process_;
  std::mutex mutex_;
  std::mutex window_mutex_;
  std::map<int, fabric::Tag> asked_;
  std::map<int, int> steps_;
  std::map<int, std::vector<reference::Taken>> taken_;
  std::vector<Timed> events_;
  std::vector<reference::Event> exchanges_;
  std::vector<Addition> additions_;
};

// How windows are used in a trial.
struct WindowUse {
  bool one_at_a_time = false;  // Under the recorder's mutex.
  bool shows_memory = false;
  Duration before_write = Duration::zero();  // How long a rank sleeps before it writes.
};

// Passes everything on, and notes reads of everything, numbers that are taken, and additions.
class RecordingWindow final : public fabric::Window {
 public:
  RecordingWindow(fabric::Endpoint& endpoint, Recorder& recorder, const WindowUse& use, std::shared_ptr<fabric::Window> window)
      : endpoint_(endpoint), recorder_(recorder), use_(use), window_(std::move(window)) {}

  const std::string& name() const override { return window_->name(); }
  fabric::Rank home() const override { return window_->home(); }
  std::size_t size() const override { return window_->size(); }

  // A model is read without the count behind it, and is no part of the method.
  Status read(std::size_t offset, std::span<float> to, fabric::Deadline deadline) override {
    if (to.size() < size()) return window_->read(offset, to, deadline);
    return noted(reference::Kind::read, [&] { return window_->read(offset, to, deadline); });
  }
  Status write(std::size_t offset, std::span<const float> from, fabric::Deadline deadline) override {
    if (use_.before_write > Duration::zero()) endpoint_.sleep(use_.before_write);
    return window_->write(offset, from, deadline);
  }
  Status add(std::size_t offset, std::span<const float> values, fabric::Deadline deadline) override {
    recorder_.added(endpoint_.rank(), offset, values.size());
    return noted(reference::Kind::add, [&] { return window_->add(offset, values, deadline); });
  }
  std::span<float> shared_memory() override { return use_.shows_memory ? window_->shared_memory() : std::span<float>{}; }
  Result<float> fetch_add(std::size_t offset, float value, fabric::Deadline deadline) override {
    return noted(reference::Kind::number, [&] { return window_->fetch_add(offset, value, deadline); });
  }

 private:
  template <class Operation>
  std::invoke_result_t<Operation> noted(reference::Kind kind, Operation operation) {
    if (use_.one_at_a_time) return recorder_.alone(operation, endpoint_.rank(), kind);
    const Time begin = endpoint_.now();
    auto result = operation();
    recorder_.took_effect(begin + (endpoint_.now() - begin) / 2, endpoint_.rank(), kind);
    return result;
  }

  fabric::Endpoint& endpoint_;
  Recorder& recorder_;
  WindowUse use_;
  std::shared_ptr<fabric::Window> window_;
};

// What workers send each other, where that is to be noted.
enum class Talk { nothing, models, gradients };

inline Talk talk_of(const std::string& strategy) {
  if (strategy == "gosgd" || strategy == "ad-psgd") return Talk::models;
  return strategy == "dogwild" || strategy == "all-to-all" || strategy == "neighbours" ? Talk::gradients : Talk::nothing;
}

// Passes everything on. Notes what server `server` receives and replies, what anybody does to windows, and what workers without a server
// send each other.
class RecordingEndpoint final : public fabric::Endpoint {
 public:
  RecordingEndpoint(fabric::Endpoint& endpoint, Recorder& recorder, fabric::Rank server, const WindowUse& use, Talk talk)
      : endpoint_(endpoint), recorder_(recorder), is_server_(endpoint.rank() == server), use_(use), talk_(talk) {}

  fabric::Rank rank() const override { return endpoint_.rank(); }
  int size() const override { return endpoint_.size(); }
  Time now() const override { return endpoint_.now(); }
  void sleep(Duration duration) override { endpoint_.sleep(duration); }
  void compute(double units, FunctionRef<void()> work) override { endpoint_.compute(units, work); }
  void pass(std::string_view point) override { endpoint_.pass(point); }
  Status send(fabric::Rank to, fabric::Tag tag, fabric::Payload payload, fabric::Deadline deadline) override {
    if (is_server_ && kind_of(tag) == Recorder::kReply) recorder_.replied(to);
    const bool is_model = talk_ == Talk::models && tag < fabric::kFirstReservedTag && !payload.bytes().empty();
    if (is_model) recorder_.talked(rank(), reference::Kind::push, to);
    Status sent = endpoint_.send(to, tag, std::move(payload), deadline);
    if (is_model && !sent) recorder_.take_back(rank());
    return sent;
  }
  bool offer(fabric::Rank to, fabric::Tag tag, fabric::Payload payload) override { return endpoint_.offer(to, tag, std::move(payload)); }
  Result<fabric::Message> receive(const fabric::Filter& filter, fabric::Deadline deadline) override {
    Result<fabric::Message> message = endpoint_.receive(filter, deadline);
    if (is_server_ && message) recorder_.received(message->source, kind_of(message->tag));
    if (message) note_model(*message);
    // Worker 0 may be a coordinator, which also waits for messages that come by themselves.
    if (rank() == 0 && message && message->tag < fabric::kFirstReservedTag) recorder_.took(0, message->source);
    return message;
  }
  std::optional<fabric::Message> poll(const fabric::Filter& filter) override {
    std::optional<fabric::Message> message = endpoint_.poll(filter);
    if (message) note_model(*message);
    if (message) recorder_.took(rank(), message->source);
    return message;
  }
  Result<std::shared_ptr<fabric::Window>> open_window(std::string_view name, std::size_t size, fabric::Rank home,
                                                      fabric::Deadline deadline) override {
    Result<std::shared_ptr<fabric::Window>> window = endpoint_.open_window(name, size, home, deadline);
    if (!window) return window;
    return std::shared_ptr<fabric::Window>(std::make_shared<RecordingWindow>(*this, recorder_, use_, *window));
  }
  fabric::PeerState peer(fabric::Rank rank) const override { return endpoint_.peer(rank); }
  std::vector<fabric::Departure> departures() const override { return endpoint_.departures(); }
  fabric::Traffic traffic() const override { return endpoint_.traffic(); }
  void show_progress(const std::atomic<std::uint64_t>* counter) override { endpoint_.show_progress(counter); }
  std::uint64_t others_progress() const override { return endpoint_.others_progress(); }
  RandomStream random(std::string_view purpose) const override { return endpoint_.random(purpose); }
  std::optional<Status> native_all_reduce(const fabric::Group& group, std::span<float> values, fabric::Deadline deadline) override {
    return endpoint_.native_all_reduce(group, values, deadline);
  }

 private:
  // Without the stretch it belongs to; 0 for messages of collectives.
  static fabric::Tag kind_of(fabric::Tag tag) { return tag < fabric::kFirstReservedTag ? tag % kTags : 0; }

  void note_model(const fabric::Message& message) {
    if (message.tag >= fabric::kFirstReservedTag) return;
    const bool of_talk = talk_ == Talk::models || (talk_ == Talk::gradients && kind_of(message.tag) == Recorder::kGradient);
    if (of_talk && !message.payload.bytes().empty()) recorder_.talked(rank(), reference::Kind::merge, message.source);
  }

  fabric::Endpoint& endpoint_;
  Recorder& recorder_;
  bool is_server_;
  WindowUse use_;
  Talk talk_;
};

// g_i = a_i w_i + w_{i+1} / 8 - b_i, with a of the worker and b of worker and step, all multiples of 1/8. Without coupling g_i depends on
// w_i alone, so that parts of the weights are problems of their own.
inline std::vector<float> trial_gradient(int worker, int step, const std::vector<float>& weights, bool coupled = true) {
  const auto eighths = [](int value, int values) { return static_cast<float>(value % values) / 8; };
  const std::size_t size = weights.size();
  std::vector<float> gradient(size);
  for (std::size_t i = 0; i < size; ++i) {
    const int at = static_cast<int>(i);
    const float curvature = 0.5F + eighths(3 * worker + 5 * at, 8);
    const float target = eighths(7 * worker + 11 * step + 3 * at + worker * step, 17) - 1;
    gradient[i] = curvature * weights[i] - target;
    if (coupled) gradient[i] += weights[(i + 1) % size] / 8;
  }
  return gradient;
}

inline params::Layout trial_layout() {
  params::Layout layout;
  layout.add("matrix", {4, 3});
  layout.add("bias", {5});
  return layout;
}

// A perceptron with units for eight workers, for strategies that train parts of one.
inline params::Layout trial_perceptron() {
  params::Layout layout;
  layout.add("dense1.weight", {9, 2});
  layout.add("dense1.bias", {9});
  layout.add("dense2.weight", {8, 9});
  layout.add("norm1.weight", {8});
  layout.add("dense3.weight", {3, 8});
  layout.add("dense3.bias", {3});
  return layout;
}

inline std::vector<float> trial_weights(const params::Layout& layout = trial_layout()) {
  std::vector<float> weights(layout.size());
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 5) / 4 - 0.5F;
  return weights;
}

// A function, because the compiler sees uninitialised memory in the default of a member that is an aggregate.
inline optim::OptimiserOptions plain_sgd() { return {}; }

struct Trial {
  std::string strategy{};
  std::map<std::string, std::string> settings{};
  std::string fabric = "sim";
  int workers = 1;
  int servers = 0;
  int steps = 9;              // Of each worker.
  std::vector<int> pauses{};  // Steps after which all finish(), and then go on,
  bool new_objects = false;   // with new strategy objects and what list_state() says.
  optim::OptimiserOptions optimiser = plain_sgd();
  double lr = 0.125;
  std::string codec = "fp32";
  std::uint64_t seed = 1;
  bool coupled = true;
  params::Layout layout = trial_layout();
  // In place of trial_gradient().
  std::function<std::vector<float>(int worker, int step, const std::vector<float>& weights)> gradient{};
  int recorded_server = 0;
  // Windows show their memory where the fabric has some, and are used without a mutex: then nobody knows the order of what happens.
  bool shows_memory = false;
  Duration before_write = Duration::zero();  // How long a rank sleeps before it writes to a window.
  // Before and after every gradient, on the thread of its worker.
  std::function<void(int worker, int step)> begins{};
  std::function<void(int worker, int step)> computed{};
  std::function<void(fabric::SimOptions&)> adjust{};  // The simulator's options, last of all.

  std::vector<std::uint64_t> samples() const {
    std::vector<std::uint64_t> result;
    for (int worker = 0; worker < workers; ++worker) result.push_back(static_cast<std::uint64_t>(100 + 10 * worker));
    return result;
  }
};

// What a generator deals out: as many batches as all workers have steps, with a pause where they pause.
class TrialBatches final : public BatchSource {
 public:
  explicit TrialBatches(const Trial& trial) {
    const auto workers = static_cast<std::uint64_t>(trial.workers);
    for (const int pause : trial.pauses) limits_.push_back(workers * static_cast<std::uint64_t>(pause));
    limits_.push_back(workers * static_cast<std::uint64_t>(trial.steps));
  }

  std::optional<Assignment> next() override {
    if (dealt_ == limits_[stretch_]) return std::nullopt;
    ++dealt_;
    return Assignment{.sample = dealt_, .number = dealt_, .indices = {static_cast<std::uint32_t>(dealt_)}};
  }
  void go_on() { ++stretch_; }

 private:
  std::vector<std::uint64_t> limits_;
  std::size_t stretch_ = 0;
  std::uint64_t dealt_ = 0;
};

struct Outcome {
  std::string failures{};                              // Of the ranks; empty if all finished.
  std::vector<std::vector<float>> models{};            // By worker, from the last finish().
  std::vector<std::vector<float>> replicas{};          // By worker: its weights at the end.
  std::vector<std::vector<char>> took_part{};          // By worker and step.
  std::vector<reference::Event> events{};              // Pushes and pulls; or reads and additions; or steps, pushes and merges.
  std::vector<reference::Event> exchanges{};           // With a centre at a server.
  std::vector<Recorder::Addition> additions{};         // To windows.
  std::vector<std::vector<reference::Taken>> taken{};  // By worker: messages that came by themselves.
  std::vector<float> first_weights{};
  std::vector<std::set<std::string>> state{};  // By rank: what it wants to find again.
  ledger::Balance balance{};

  // What a reference replays.
  reference::Schedule schedule(const Trial& trial) const {
    const bool coupled = trial.coupled;
    return {.workers = trial.workers,
            .steps = trial.steps,
            .weights = first_weights,
            .gradient = [coupled](int worker, int step,
                                  const std::vector<float>& weights) { return trial_gradient(worker, step, weights, coupled); },
            .lr = trial.lr,
            .momentum = trial.optimiser.name == "sgd" ? 0 : trial.optimiser.momentum,
            .order = events,
            .first_pull = true};
  }
};

// Ranks of different speeds, in no order of their numbers, and in the simulator links with jitter where none is needed to be without.
inline std::unique_ptr<fabric::Fabric> trial_fabric(const Trial& trial, const Description& description) {
  using namespace std::chrono_literals;
  fabric::FabricOptions options;
  options.ranks = trial.workers + trial.servers + (description.needs_generator ? 1 : 0);
  options.seed = trial.seed;
  if (trial.fabric != "sim") return fabric::make_fabric(trial.fabric, options);
  fabric::SimOptions sim;
  static_cast<fabric::FabricOptions&>(sim) = options;
  RandomStream random(trial.seed, 0, "trial speeds");
  for (int worker = 0; worker < trial.workers; ++worker) {
    constexpr double kSlowest = 0.3;
    sim.speeds.push_back({.ranks = fabric::RankSet{worker}, .factor = kSlowest + random.uniform()});
  }
  sim.compute.time_per_unit = Distribution::lognormal(1ms, 500us);
  if (description.places != Places::centre) sim.network.link.jitter = Distribution::exponential(300us);
  if (trial.adjust) trial.adjust(sim);
  return std::make_unique<fabric::SimFabric>(sim);
}

inline Roles trial_roles(const Trial& trial, const Description& description) {
  return {.workers = trial.workers, .servers = trial.servers, .generators = description.needs_generator ? 1 : 0};
}

// Before anything is made that all processes have to make.
inline Settings checked_settings(const Trial& trial, const Description& description) {
  Settings settings(description.name, description.options);
  for (const auto& [name, value] : trial.settings) settings.set(name, value);
  check_use(description, settings, trial_roles(trial, description), trial.codec, trial.optimiser);
  return settings;
}

// A trial that is under way.
class TrialRun {
 public:
  explicit TrialRun(const Trial& trial)
      : trial_(trial),
        registry_(Registry::built_in()),
        description_(registry_.find(trial.strategy)),
        settings_(checked_settings(trial, description_)),
        roles_(trial_roles(trial, description_)),
        talk_(talk_of(trial.strategy)),
        batches_(trial),
        fabric_(trial_fabric(trial, description_)),
        recorder_(fabric::in_one_process(*fabric_)),
        ledger_(roles_.ranks(), roles_.workers, place_ranks(description_.places, roles_)) {
    const auto workers = static_cast<std::size_t>(trial.workers);
    outcome_.models.resize(workers);
    outcome_.replicas.resize(workers);
    outcome_.took_part.resize(workers);
    layout_ = description_.trains_parts ? trial_perceptron() : trial_.layout;
    outcome_.first_weights = trial_weights(layout_);
    outcome_.state.resize(static_cast<std::size_t>(roles_.ranks()));
  }

  Outcome run() {
    const fabric::RunReport report = fabric_->run([&](fabric::Endpoint& raw) -> Status {
      const WindowUse use{.one_at_a_time = trial_.fabric != "sim" && !trial_.shows_memory,
                          .shows_memory = trial_.shows_memory,
                          .before_write = trial_.before_write};
      RecordingEndpoint endpoint(raw, recorder_, roles_.servers > 0 ? roles_.server(trial_.recorded_server) : -1, use, talk_);
      return roles_.is_worker(raw.rank()) ? work(endpoint) : serve(endpoint);
    });
    outcome_.failures = report.summary();
    if (!fabric::in_one_process(*fabric_)) gather();
    outcome_.events = recorder_.events();
    outcome_.exchanges = recorder_.exchanges();
    outcome_.additions = recorder_.additions();
    const std::map<int, std::vector<reference::Taken>> taken = recorder_.taken();
    for (int worker = 0; worker < trial_.workers; ++worker) {
      outcome_.taken.push_back(taken.contains(worker) ? taken.at(worker) : std::vector<reference::Taken>());
    }
    outcome_.balance = ledger_.close({});
    return std::move(outcome_);
  }

 private:
  // What the ranks of other processes have found.
  void gather() {
    Gathering gathering;
    recorder_.add_to(gathering, fabric_->size());
    for (std::size_t worker = 0; worker < outcome_.models.size(); ++worker) {
      gathering.add(outcome_.models[worker]);
      gathering.add(outcome_.replicas[worker]);
      gathering.add(outcome_.took_part[worker]);
    }
    std::vector<std::string> accounts(static_cast<std::size_t>(fabric_->size()));
    const int own = fabric_->local_ranks()[0];
    accounts[static_cast<std::size_t>(own)] = ledger_.save_account(own);
    for (std::string& account : accounts) gathering.add(account);
    gathering.run(*fabric_);
    for (int rank = 0; rank < fabric_->size(); ++rank) ledger_.restore_account(rank, accounts[static_cast<std::size_t>(rank)]);
  }

  Status work(fabric::Endpoint& endpoint) {
    const int worker = endpoint.rank();
    const auto index = static_cast<std::size_t>(worker);
    std::vector<float> model = outcome_.first_weights;
    std::vector<float> weights = model;
    if (description_.trains_parts) weights.resize(description_.part_layout(settings_, roles_, layout_, worker).size());
    std::vector<float> gradient(weights.size());
    std::unique_ptr<Strategy> strategy = make(endpoint);
    STARLING_TRY(strategy->start(weights, model));
    std::size_t pause = 0;
    for (int step = 1; roles_.generators > 0 || step <= trial_.steps; ++step) {
      if (roles_.generators > 0) {
        Result<std::optional<Assignment>> batch = strategy->next_batch();
        if (!batch) return batch.failure();
        if (!*batch) {
          if (pause++ == trial_.pauses.size()) break;
          STARLING_TRY(go_on(endpoint, strategy, weights, model));
          --step;
          continue;
        }
      }
      if (trial_.begins) trial_.begins(worker, step);
      const bool takes_part = strategy->takes_part(static_cast<std::uint64_t>(step));
      outcome_.took_part[index].push_back(takes_part ? 1 : 0);
      STARLING_TRY(strategy->prepare(weights));
      std::fill(gradient.begin(), gradient.end(), 0.0F);
      if (takes_part) {
        endpoint.compute(1, [&] {
          gradient = trial_.gradient ? trial_.gradient(worker, step, weights) : trial_gradient(worker, step, weights, trial_.coupled);
        });
      }
      if (talk_ != Talk::nothing) recorder_.talked(worker, reference::Kind::step);
      if (trial_.computed) trial_.computed(worker, step);
      recorder_.at_step(worker, step);
      STARLING_TRY(strategy->exchange({.weights = weights,
                                       .gradient = gradient,
                                       .number = static_cast<std::uint64_t>(step),
                                       .lr = trial_.lr,
                                       .samples = takes_part ? std::size_t{1} : std::size_t{0}}));
      if (roles_.generators > 0 || std::find(trial_.pauses.begin(), trial_.pauses.end(), step) == trial_.pauses.end()) continue;
      STARLING_TRY(go_on(endpoint, strategy, weights, model));
    }
    recorder_.at_step(worker, trial_.steps + 1);
    STARLING_TRY(strategy->finish(weights, model));
    note_state(endpoint, *strategy);
    outcome_.models[index] = model;
    outcome_.replicas[index] = weights;
    return {};
  }

  // As in a run: nobody has a new object before all have finished with the old ones.
  Status meet(fabric::Endpoint& endpoint) {
    STARLING_TRY(collective::barrier(endpoint, fabric::Group::world(endpoint.size())));
    ++stretches_[static_cast<std::size_t>(endpoint.rank())];
    return {};
  }

  // A worker at a pause.
  Status go_on(fabric::Endpoint& endpoint, std::unique_ptr<Strategy>& strategy, std::vector<float>& weights, std::vector<float>& model) {
    STARLING_TRY(strategy->finish(weights, model));
    if (!trial_.new_objects) return {};
    STARLING_TRY(meet(endpoint));
    replace(endpoint, strategy);
    return strategy->start(weights, model);
  }

  Status serve(fabric::Endpoint& endpoint) {
    std::unique_ptr<Strategy> strategy = make(endpoint);
    STARLING_TRY(strategy->start_serving());
    for (std::size_t pause = 0; pause < trial_.pauses.size(); ++pause) {
      STARLING_TRY(strategy->serve());
      batches_.go_on();
      if (!trial_.new_objects) continue;
      STARLING_TRY(meet(endpoint));
      replace(endpoint, strategy);
      STARLING_TRY(strategy->start_serving());
    }
    STARLING_TRY(strategy->serve());
    note_state(endpoint, *strategy);
    return {};
  }

  void note_state(const fabric::Endpoint& endpoint, Strategy& strategy) {
    params::StateList list;
    strategy.list_state(list);
    std::set<std::string>& names = outcome_.state[static_cast<std::size_t>(endpoint.rank())];
    for (const params::StateList::Vector& vector : list.vectors()) names.insert(vector.name);
    for (const params::StateList::Number& number : list.numbers()) names.insert(number.name);
  }

  std::unique_ptr<Strategy> make(fabric::Endpoint& endpoint) {
    return description_.make({.endpoint = endpoint,
                              .roles = roles_,
                              .layout = layout_,
                              .settings = settings_,
                              .account = ledger_.account(endpoint.rank()),
                              .optimiser = trial_.optimiser,
                              .codec = trial_.codec,
                              .part_samples = trial_.samples(),
                              .seed = trial_.seed,
                              .stretch = stretches_[static_cast<std::size_t>(endpoint.rank())],
                              .batches = &batches_});
  }

  // By another object that has what this one listed, as after a checkpoint.
  void replace(fabric::Endpoint& endpoint, std::unique_ptr<Strategy>& strategy) {
    params::StateList before;
    strategy->list_state(before);
    std::unique_ptr<Strategy> next = make(endpoint);
    params::StateList after;
    next->list_state(after);
    ASSERT_EQ(after.vectors().size(), before.vectors().size());
    ASSERT_EQ(after.numbers().size(), before.numbers().size());
    for (std::size_t i = 0; i < before.vectors().size(); ++i) {
      ASSERT_EQ(after.vectors()[i].name, before.vectors()[i].name);
      std::copy(before.vectors()[i].values.begin(), before.vectors()[i].values.end(), after.vectors()[i].values.begin());
    }
    for (std::size_t i = 0; i < before.numbers().size(); ++i) *after.numbers()[i].value = *before.numbers()[i].value;
    strategy = std::move(next);
  }

  const Trial& trial_;
  Registry registry_;
  const Description& description_;
  Settings settings_;
  Roles roles_;
  Talk talk_;
  TrialBatches batches_;
  std::unique_ptr<fabric::Fabric> fabric_;
  Recorder recorder_;
  std::vector<std::uint64_t> stretches_ = std::vector<std::uint64_t>(static_cast<std::size_t>(roles_.ranks()));  // By rank.
  params::Layout layout_;
  ledger::Ledger ledger_;
  Outcome outcome_;
};

// Throws UserError where the strategy cannot be used so.
inline Outcome run_trial(const Trial& trial) { return TrialRun(trial).run(); }

}  // namespace starling::strategy
