// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "contract/strategy_references.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "starling/base/error.h"

namespace starling::strategy::reference {
namespace {

using Vector = std::vector<double>;

Vector to_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

std::vector<float> to_float(const Vector& values) {
  std::vector<float> result;
  for (const double value : values) result.push_back(static_cast<float>(value));
  return result;
}

// a + factor b.
Vector plus(const Vector& a, double factor, const Vector& b) {
  Vector result = a;
  for (std::size_t i = 0; i < a.size(); ++i) result[i] += factor * b[i];
  return result;
}

Vector gradient_of(const Schedule& schedule, int worker, int step, const Vector& weights) {
  const std::vector<float> gradient = schedule.gradient(worker, step, to_float(weights));
  STARLING_CHECK(gradient.size() == weights.size(), std::string("a gradient has a number per weight"));
  return to_double(gradient);
}

// What a step subtracts from the weights, with its own velocity.
struct HeavyBall {
  Vector velocity;

  Vector step(const Schedule& schedule, const Vector& gradient) {
    Vector step(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      velocity[i] = schedule.momentum * velocity[i] + gradient[i];
      step[i] = schedule.lr * velocity[i];
    }
    return step;
  }
};

struct Nesterov {
  Vector velocity;

  Vector step(const Schedule& schedule, const Vector& gradient) {
    Vector step(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      velocity[i] = schedule.momentum * velocity[i] + gradient[i];
      step[i] = schedule.lr * (gradient[i] + schedule.momentum * velocity[i]);
    }
    return step;
  }
};

Vector zeros(const Schedule& schedule) { return Vector(schedule.weights.size()); }
std::size_t count(const Schedule& schedule) { return static_cast<std::size_t>(schedule.workers); }

Vector mean(const std::vector<Vector>& vectors) {
  Vector sum(vectors.front().size());
  for (const Vector& vector : vectors) sum = plus(sum, 1, vector);
  for (double& value : sum) value /= static_cast<double>(vectors.size());
  return sum;
}

Result to_result(const Vector& model, const std::vector<Vector>& replicas) {
  Result result{.model = to_float(model)};
  for (const Vector& replica : replicas) result.replicas.push_back(to_float(replica));
  return result;
}

double damping(const Schedule& schedule, int version, int pulled_version) {
  const int staleness = version - pulled_version;
  if (schedule.damping == Damping::by_staleness) return 1.0 / std::max(1, staleness);
  if (schedule.damping == Damping::by_staleness_plus_one) return 1.0 / (staleness + 1);
  return 1;
}

// A worker of a server: what it computes on, and how far it is.
struct Worker {
  Vector weights;
  HeavyBall optimiser;
  int step = 0;            // Gradients so far.
  int pulled_version = 0;  // Of the server.
};

std::vector<Worker> make_workers(const Schedule& schedule) {
  return std::vector<Worker>(count(schedule), Worker{.weights = to_double(schedule.weights), .optimiser = {zeros(schedule)}});
}

Vector next_gradient(const Schedule& schedule, int index, Worker& worker) {
  STARLING_CHECK(worker.step < schedule.steps, std::string("a worker has more events than its steps give"));
  return gradient_of(schedule, index, ++worker.step, worker.weights);
}

Result of_server(const Schedule& schedule, const Vector& server, const std::vector<Worker>& workers) {
  std::vector<Vector> replicas;
  for (const Worker& worker : workers) {
    STARLING_CHECK(worker.step == schedule.steps, std::string("the order ends before all steps are made"));
    replicas.push_back(worker.weights);
  }
  return to_result(server, replicas);
}

void check_kind(const Event& event, Kind expected) {
  STARLING_CHECK(event.kind == expected, std::string("an event that this worker cannot come to now"));
}

}  // namespace

std::vector<Event> in_turn(int workers, int times, const std::vector<Kind>& kinds) {
  std::vector<Event> order;
  for (int i = 0; i < times; ++i) {
    for (int worker = 0; worker < workers; ++worker) {
      for (const Kind kind : kinds) order.push_back({worker, kind});
    }
  }
  return order;
}

Result sync(const Schedule& schedule) {
  Vector weights = to_double(schedule.weights);
  HeavyBall optimiser{zeros(schedule)};
  for (int step = 1; step <= schedule.steps; ++step) {
    std::vector<Vector> gradients;
    for (int worker = 0; worker < schedule.workers; ++worker) gradients.push_back(gradient_of(schedule, worker, step, weights));
    weights = plus(weights, -1, optimiser.step(schedule, mean(gradients)));
  }
  return to_result(weights, std::vector<Vector>(count(schedule), weights));
}

Result local_sgd(const Schedule& schedule, int period) {
  std::vector<Vector> replicas(count(schedule), to_double(schedule.weights));
  std::vector<HeavyBall> optimisers(count(schedule), HeavyBall{zeros(schedule)});
  for (int step = 1; step <= schedule.steps; ++step) {
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      const Vector gradient = gradient_of(schedule, static_cast<int>(i), step, replicas[i]);
      replicas[i] = plus(replicas[i], -1, optimisers[i].step(schedule, gradient));
    }
    if (step % period == 0) replicas.assign(count(schedule), mean(replicas));
  }
  return to_result(mean(replicas), replicas);
}

Result fedavg(const Schedule& schedule, const FedAvgOptions& options) {
  Vector model = to_double(schedule.weights);
  int step = 0;
  for (const std::vector<int>& clients : options.clients) {
    Vector sum = zeros(schedule);
    double samples = 0;
    for (const int client : clients) {
      Vector weights = model;
      HeavyBall optimiser{zeros(schedule)};
      for (int local = 1; local <= options.local_steps; ++local) {
        const Vector gradient = gradient_of(schedule, client, step + local, weights);
        weights = plus(weights, -1, optimiser.step(schedule, gradient));
      }
      sum = plus(sum, options.samples[static_cast<std::size_t>(client)], weights);
      samples += options.samples[static_cast<std::size_t>(client)];
    }
    model = plus(zeros(schedule), 1 / samples, sum);
    step += options.local_steps;
  }
  STARLING_CHECK(step == schedule.steps, std::string("the rounds do not make up the steps"));
  return to_result(model, std::vector<Vector>(count(schedule), model));
}

Result ssp(const Schedule& schedule, int bound) {
  Vector server = to_double(schedule.weights);
  int version = 0;
  std::vector<Worker> workers = make_workers(schedule);
  for (const Event& event : schedule.order) {
    Worker& worker = workers[static_cast<std::size_t>(event.worker)];
    if (event.kind == Kind::push) {
      const Vector step = worker.optimiser.step(schedule, next_gradient(schedule, event.worker, worker));
      const double factor = damping(schedule, version, worker.pulled_version) / schedule.workers;
      server = plus(server, -factor, step);
      worker.weights = plus(worker.weights, -factor, step);
      ++version;
    } else {
      check_kind(event, Kind::pull);
      for (const Worker& other : workers) {
        STARLING_CHECK(other.step >= worker.step - bound, std::string("a worker pulls too far ahead of the slowest"));
      }
      worker.weights = server;
      worker.pulled_version = version;
    }
  }
  return of_server(schedule, server, workers);
}

Result async(const Schedule& schedule) {
  Vector server = to_double(schedule.weights);
  HeavyBall optimiser{zeros(schedule)};
  int version = 0;
  std::vector<Worker> workers = make_workers(schedule);
  for (const Event& event : schedule.order) {
    Worker& worker = workers[static_cast<std::size_t>(event.worker)];
    if (event.kind == Kind::push) {
      const Vector step = optimiser.step(schedule, next_gradient(schedule, event.worker, worker));
      server = plus(server, -damping(schedule, version, worker.pulled_version), step);
      ++version;
    } else {
      check_kind(event, Kind::pull);
      worker.weights = server;
      worker.pulled_version = version;
    }
  }
  return of_server(schedule, server, workers);
}

Result downpour(const Schedule& schedule, int push_period, int fetch_period) {
  Vector server = to_double(schedule.weights);
  int version = 0;
  std::vector<Worker> workers = make_workers(schedule);
  std::vector<Vector> sums(count(schedule), zeros(schedule));  // Of the steps not yet pushed.
  std::vector<std::deque<Kind>> due(count(schedule));          // What each worker does before its next step.
  if (schedule.first_pull) due.assign(count(schedule), {Kind::pull});
  for (const Event& event : schedule.order) {
    const auto index = static_cast<std::size_t>(event.worker);
    Worker& worker = workers[index];
    while (due[index].empty()) {
      const Vector step = worker.optimiser.step(schedule, next_gradient(schedule, event.worker, worker));
      worker.weights = plus(worker.weights, -1, step);
      sums[index] = plus(sums[index], 1, step);
      const bool push_is_due = worker.step % push_period == 0;
      if (push_is_due) due[index].push_back(Kind::push);
      if (worker.step % fetch_period == 0) due[index].push_back(Kind::pull);
      if (worker.step == schedule.steps && !push_is_due) due[index].push_back(Kind::push);
    }
    check_kind(event, due[index].front());
    due[index].pop_front();
    if (event.kind == Kind::push) {
      server = plus(server, -damping(schedule, version, worker.pulled_version), sums[index]);
      sums[index] = zeros(schedule);
      ++version;
      ++worker.pulled_version;  // Its weights have what it has pushed.
    } else {
      worker.weights = server;
      worker.pulled_version = version;
    }
  }
  return of_server(schedule, server, workers);
}

Result agn(const Schedule& schedule, int period) {
  Vector server = to_double(schedule.weights);
  int version = 0;
  std::vector<Worker> workers = make_workers(schedule);
  for (const Event& event : schedule.order) {
    Worker& worker = workers[static_cast<std::size_t>(event.worker)];
    if (event.kind == Kind::push) {
      const Vector before = worker.weights;
      const int steps = std::min(period, schedule.steps - worker.step);
      for (int step = 0; step < steps; ++step) {
        const Vector gradient = next_gradient(schedule, event.worker, worker);
        worker.weights = plus(worker.weights, -1, worker.optimiser.step(schedule, gradient));
      }
      STARLING_CHECK(steps > 0, std::string("a worker has more events than its steps give"));
      const Vector moved = plus(worker.weights, -1, before);
      server = plus(server, damping(schedule, version, worker.pulled_version) / steps, moved);
      ++version;
    } else {
      check_kind(event, Kind::pull);
      worker.weights = server;
      worker.pulled_version = version;
    }
  }
  return of_server(schedule, server, workers);
}

Result dc_asgd(const Schedule& schedule, const DcAsgdOptions& options) {
  Vector server = to_double(schedule.weights);
  HeavyBall optimiser{zeros(schedule)};
  Vector mean_square = zeros(schedule);
  int version = 0;
  std::vector<Worker> workers = make_workers(schedule);
  std::vector<Vector> backups(count(schedule), server);
  for (const Event& event : schedule.order) {
    const auto index = static_cast<std::size_t>(event.worker);
    Worker& worker = workers[index];
    if (event.kind == Kind::push) {
      Vector gradient = next_gradient(schedule, event.worker, worker);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double square = gradient[i] * gradient[i];
        mean_square[i] = 0.95 * mean_square[i] + 0.05 * square;
        const double lambda = options.adaptive ? options.lambda / std::sqrt(mean_square[i] + 1e-7) : options.lambda;
        gradient[i] += lambda * square * (server[i] - backups[index][i]);
      }
      const Vector step = optimiser.step(schedule, gradient);
      server = plus(server, -damping(schedule, version, worker.pulled_version), step);
      ++version;
    } else {
      check_kind(event, Kind::pull);
      worker.weights = server;
      worker.pulled_version = version;
      backups[index] = server;
    }
  }
  return of_server(schedule, server, workers);
}

namespace {

// A group of workers that step together; of one where every worker is by itself.
template <class Optimiser>
class ElasticGroup {
 public:
  ElasticGroup(const Schedule& schedule, int first, int size, int period)
      : schedule_(schedule),
        first_(first),
        size_(size),
        period_(period),
        weights_(to_double(schedule.weights)),
        optimiser_{zeros(schedule)} {}

  // Makes the steps before the next one that `period` divides, and those after the last such.
  void run_alone() {
    while (step_ < schedule_.steps && (step_ + 1) % period_ != 0) step_by(zeros(schedule_));
  }

  // The step that `period` divides. Returns what the centre has to add.
  Vector exchange(const Vector& centre, double alpha) {
    run_alone();
    STARLING_CHECK(step_ < schedule_.steps, std::string("a worker has more events than its steps give"));
    Vector difference = plus(zeros(schedule_), alpha, plus(weights_, -1, centre));
    step_by(difference);
    return difference;
  }

  bool done() const { return step_ == schedule_.steps; }
  const Vector& weights() const { return weights_; }

 private:
  void step_by(const Vector& elastic) {
    ++step_;
    std::vector<Vector> gradients;
    for (int i = 0; i < size_; ++i) gradients.push_back(gradient_of(schedule_, first_ + i, step_, weights_));
    weights_ = plus(plus(weights_, -1, optimiser_.step(schedule_, mean(gradients))), -1, elastic);
  }

  const Schedule& schedule_;
  int first_;
  int size_;
  int period_;
  int step_ = 0;
  Vector weights_;
  Optimiser optimiser_;
};

template <class Optimiser>
std::vector<ElasticGroup<Optimiser>> make_groups(const Schedule& schedule, int size, int period) {
  STARLING_CHECK(schedule.workers % size == 0, std::string("groups of one size"));
  std::vector<ElasticGroup<Optimiser>> groups;
  for (int first = 0; first < schedule.workers; first += size) groups.emplace_back(schedule, first, size, period);
  return groups;
}

template <class Optimiser>
Result of_centre(const Vector& centre, std::vector<ElasticGroup<Optimiser>> groups, int size) {
  std::vector<Vector> replicas;
  for (ElasticGroup<Optimiser>& group : groups) {
    group.run_alone();
    STARLING_CHECK(group.done(), std::string("the order ends before all steps are made"));
    replicas.insert(replicas.end(), static_cast<std::size_t>(size), group.weights());
  }
  return to_result(centre, replicas);
}

template <class Optimiser>
Result elastic_locked(const Schedule& schedule, double alpha, int period) {
  Vector centre = to_double(schedule.weights);
  auto groups = make_groups<Optimiser>(schedule, 1, period);
  const bool by_turns = schedule.order.empty();
  const std::vector<Event> order = by_turns ? in_turn(schedule.workers, schedule.steps / period, {Kind::exchange}) : schedule.order;
  for (const Event& event : order) {
    check_kind(event, Kind::exchange);
    centre = plus(centre, 1, groups[static_cast<std::size_t>(event.worker)].exchange(centre, alpha));
  }
  return of_centre(centre, std::move(groups), 1);
}

template <class Optimiser>
Result elastic_wild(const Schedule& schedule, const EaWildOptions& options) {
  Vector centre = to_double(schedule.weights);
  auto groups = make_groups<Optimiser>(schedule, options.group_size, options.period);
  std::vector<std::optional<Vector>> pending(groups.size());  // From a read that is not yet followed by its addition.
  for (const Event& event : schedule.order) {
    if (event.kind == Kind::number) continue;
    const auto index = static_cast<std::size_t>(event.worker / options.group_size);
    check_kind(event, pending[index] ? Kind::add : Kind::read);
    if (event.kind == Kind::read) {
      pending[index] = groups[index].exchange(centre, options.alpha);
    } else {
      centre = plus(centre, 1, *pending[index]);
      pending[index].reset();
    }
  }
  for (const std::optional<Vector>& left : pending) STARLING_CHECK(!left, std::string("a group that never adds its difference"));
  return of_centre(centre, std::move(groups), options.group_size);
}

}  // namespace

Result easgd(const Schedule& schedule, double alpha, int period) { return elastic_locked<HeavyBall>(schedule, alpha, period); }

Result ea_msgd(const Schedule& schedule, double alpha, int period) { return elastic_locked<Nesterov>(schedule, alpha, period); }

Result ea_wild(const Schedule& schedule, const EaWildOptions& options) {
  return options.nesterov ? elastic_wild<Nesterov>(schedule, options) : elastic_wild<HeavyBall>(schedule, options);
}

Result hogwild(const Schedule& schedule) {
  Vector shared = to_double(schedule.weights);
  int numbers = 0;
  std::vector<Worker> workers = make_workers(schedule);
  std::vector<Kind> next(count(schedule), Kind::read);
  std::vector<double> factors(count(schedule));
  for (const Event& event : schedule.order) {
    const auto index = static_cast<std::size_t>(event.worker);
    Worker& worker = workers[index];
    check_kind(event, next[index]);
    if (event.kind == Kind::read) {
      worker.weights = shared;
      worker.pulled_version = numbers;
      next[index] = Kind::number;
    } else if (event.kind == Kind::number) {
      factors[index] = damping(schedule, numbers++, worker.pulled_version);
      next[index] = Kind::add;
    } else {
      const Vector step = worker.optimiser.step(schedule, next_gradient(schedule, event.worker, worker));
      shared = plus(shared, -factors[index], step);
      next[index] = Kind::read;
    }
  }
  for (Worker& worker : workers) worker.weights = shared;
  return of_server(schedule, shared, workers);
}

namespace {

struct UnderWay {
  Vector weights{};
  double alpha = 0;
};

// Workers that mix models, and the models that are under way, by sender and receiver in the order in which they were sent.
class Gossip {
 public:
  explicit Gossip(const Schedule& schedule)
      : schedule_(schedule), workers_(make_workers(schedule)), alpha_(workers_.size(), 1.0 / schedule.workers) {}

  Worker& worker(int index) { return workers_[static_cast<std::size_t>(index)]; }
  double& alpha(int index) { return alpha_[static_cast<std::size_t>(index)]; }
  void send(int from, int to, UnderWay model) { under_way_[{from, to}].push_back(std::move(model)); }
  UnderWay take(int from, int to) {
    std::deque<UnderWay>& queue = under_way_[{from, to}];
    STARLING_CHECK(!queue.empty(), std::string("a model is merged that was not pushed"));
    UnderWay first = queue.front();
    queue.pop_front();
    return first;
  }
  void apply(int index, const Vector& gradient) {
    worker(index).weights = plus(worker(index).weights, -1, worker(index).optimiser.step(schedule_, gradient));
  }

  Result result() const {
    for (const auto& [pair, queue] : under_way_) STARLING_CHECK(queue.empty(), std::string("a model is still under way"));
    double sum = 0;
    for (const double alpha : alpha_) sum += alpha;
    STARLING_CHECK(std::abs(sum - 1) < 1e-12, std::string("the weights of the models do not add up to 1"));
    return of_server(schedule_, workers_[0].weights, workers_);
  }

 private:
  const Schedule& schedule_;
  std::vector<Worker> workers_;
  std::vector<double> alpha_;
  std::map<std::pair<int, int>, std::deque<UnderWay>> under_way_;
};

}  // namespace

Result gosgd(const Schedule& schedule) {
  Gossip gossip(schedule);
  for (const Event& event : schedule.order) {
    Worker& worker = gossip.worker(event.worker);
    double& alpha = gossip.alpha(event.worker);
    if (event.kind == Kind::step) {
      gossip.apply(event.worker, next_gradient(schedule, event.worker, worker));
    } else if (event.kind == Kind::push) {
      alpha /= 2;
      gossip.send(event.worker, event.peer, {worker.weights, alpha});
    } else {
      check_kind(event, Kind::merge);
      const UnderWay model = gossip.take(event.peer, event.worker);
      for (std::size_t i = 0; i < worker.weights.size(); ++i) {
        worker.weights[i] = (alpha * worker.weights[i] + model.alpha * model.weights[i]) / (alpha + model.alpha);
      }
      alpha += model.alpha;
    }
  }
  return gossip.result();
}

Result ad_psgd(const Schedule& schedule) {
  Gossip gossip(schedule);
  std::vector<std::optional<int>> asked(count(schedule));  // Whom an active worker waits for,
  std::vector<Vector> gradients(count(schedule));          // with this gradient.
  for (const Event& event : schedule.order) {
    const auto index = static_cast<std::size_t>(event.worker);
    const bool active = event.worker % 2 == 0;
    Worker& worker = gossip.worker(event.worker);
    if (event.kind == Kind::step) {
      gradients[index] = next_gradient(schedule, event.worker, worker);
      if (!asked[index]) gossip.apply(event.worker, gradients[index]);
    } else if (event.kind == Kind::push) {
      if (!active) continue;
      STARLING_CHECK(!asked[index], std::string("an active worker asks before it is answered"));
      STARLING_CHECK(event.peer % 2 == 1, std::string("an active worker asks another one"));
      asked[index] = event.peer;
      gossip.send(event.worker, event.peer, {worker.weights});
    } else {
      check_kind(event, Kind::merge);
      const UnderWay model = gossip.take(event.peer, event.worker);
      if (!active) gossip.send(event.worker, event.peer, {worker.weights});
      worker.weights = mean({worker.weights, model.weights});
      if (!active) continue;
      STARLING_CHECK(asked[index] == event.peer, std::string("an active worker is answered by one that it did not ask"));
      gossip.apply(event.worker, gradients[index]);
      asked[index].reset();
    }
  }
  return gossip.result();
}

Result streams(const Schedule& schedule, const StreamOptions& options) {
  Schedule used = schedule;
  if (!options.momentum) used.momentum = 0;
  std::vector<Worker> workers = make_workers(used);
  std::map<std::pair<int, int>, std::deque<Vector>> under_way;
  int steps = 0;
  for (const Event& event : used.order) {
    Worker& worker = workers[static_cast<std::size_t>(event.worker)];
    Vector gradient;
    if (event.kind == Kind::step) {
      gradient = gradient_of(used, event.worker, ++worker.step, worker.weights);
      ++steps;
      for (int peer = 0; peer < used.workers; ++peer) {
        if (peer != event.worker && options.are_peers(event.worker, peer)) under_way[{event.worker, peer}].push_back(gradient);
      }
    } else {
      check_kind(event, Kind::merge);
      std::deque<Vector>& queue = under_way[{event.peer, event.worker}];
      STARLING_CHECK(!queue.empty(), std::string("a gradient is applied that was not sent"));
      gradient = plus(zeros(used), options.weight, queue.front());
      queue.pop_front();
    }
    worker.weights = plus(worker.weights, -1, worker.optimiser.step(used, gradient));
  }
  STARLING_CHECK(steps == used.steps * used.workers, std::string("the order ends before all steps are made"));
  for (const auto& [pair, queue] : under_way) STARLING_CHECK(queue.empty(), std::string("a gradient is still under way"));
  std::vector<Vector> replicas;
  for (const Worker& worker : workers) replicas.push_back(worker.weights);
  return to_result(workers[0].weights, replicas);
}

namespace {

Vector part_of(const Vector& model, const IstPart& part) {
  Vector result;
  for (const std::size_t index : part.indices) result.push_back(model[index]);
  return result;
}

Vector first_model(const Schedule& schedule, const IstOptions& options) {
  Vector model = to_double(schedule.weights);
  std::vector<bool> owned(model.size());
  for (const IstPart& part : options.deals[0]) {
    for (const std::size_t index : part.indices) owned[index] = true;
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (options.zero_unowned && !owned[i]) model[i] = 0;
  }
  return model;
}

// The model with the weighted sum of the parts in place of what anybody has.
Vector merged(Vector model, const std::vector<IstPart>& deal, const std::vector<Vector>& parts) {
  for (const IstPart& part : deal) {
    for (const std::size_t index : part.indices) model[index] = 0;
  }
  for (std::size_t k = 0; k < parts.size(); ++k) {
    for (std::size_t i = 0; i < parts[k].size(); ++i) model[deal[k].indices[i]] += deal[k].values[i] * parts[k][i];
  }
  return model;
}

Result waiting_ist(const Schedule& schedule, const IstOptions& options) {
  Vector model = first_model(schedule, options);
  std::vector<Vector> parts(count(schedule));
  std::vector<HeavyBall> optimisers(count(schedule));
  std::size_t deal = 0;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    parts[k] = part_of(model, options.deals[0][k]);
    optimisers[k].velocity.assign(parts[k].size(), 0);
  }
  for (int step = 1; step <= schedule.steps; ++step) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      parts[k] = plus(parts[k], -1, optimisers[k].step(schedule, gradient_of(schedule, static_cast<int>(k), step, parts[k])));
    }
    if (step % options.period != 0) continue;
    model = merged(model, options.deals[deal], parts);
    if (options.deals_anew) ++deal;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      parts[k] = part_of(model, options.deals[deal][k]);
      if (options.deals_anew) optimisers[k].velocity.assign(parts[k].size(), 0);
    }
  }
  return to_result(schedule.steps % options.period == 0 ? model : merged(model, options.deals[deal], parts), parts);
}

// Nobody waits. Everybody goes on as long as what it takes next has been sent.
class FreeIst {
 public:
  FreeIst(const Schedule& schedule, const IstOptions& options)
      : schedule_(schedule), options_(options), deal_(options.deals[0]), model_(first_model(schedule, options)), workers_(count(schedule)) {
    for (std::size_t k = 0; k < workers_.size(); ++k) {
      workers_[k].weights = latest_.emplace_back(part_of(model_, deal_[k]));
      workers_[k].optimiser.velocity.assign(workers_[k].weights.size(), 0);
    }
  }

  Result run() {
    for (bool anybody = true; anybody;) {
      anybody = false;
      for (std::size_t k = 0; k < workers_.size(); ++k) anybody = go_on(k) || anybody;
    }
    for (const Worker& worker : workers_) STARLING_CHECK(worker.finished, std::string("somebody takes what nobody sends"));
    model_ = merged(model_, deal_, latest_);
    std::vector<Vector> replicas;
    for (std::size_t k = 0; k < workers_.size(); ++k) replicas.push_back(part_of(model_, deal_[k]));
    return to_result(model_, replicas);
  }

 private:
  struct Push {
    int number = 0;  // 0: there was nothing to push at the end.
    bool last = false;
    Vector weights{};
  };
  struct Worker {
    Vector weights{};
    HeavyBall optimiser{};
    int step = 0;
    int pushes = 0;
    bool finished = false;
    std::size_t taken = 0;
    std::deque<Push> to_coordinator{};
    std::deque<Push> from_coordinator{};  // The part of the model, and which push is in it.
    std::deque<Push> own{};               // Pushes that it has not been told of, moved along with its weights.
  };

  // What worker k takes in this step, if all of it was sent.
  bool is_there(std::size_t k, int step) const {
    std::vector<std::size_t> needed(workers_.size());
    for (std::size_t i = workers_[k].taken; i < options_.taken[k].size() && options_.taken[k][i].step == step; ++i) {
      ++needed[static_cast<std::size_t>(options_.taken[k][i].source)];
    }
    if (k != 0) return workers_[k].from_coordinator.size() >= needed[0];
    for (std::size_t source = 1; source < workers_.size(); ++source) {
      if (workers_[source].to_coordinator.size() < needed[source]) return false;
    }
    return true;
  }

  bool go_on(std::size_t k) {
    Worker& worker = workers_[k];
    if (worker.finished) return false;
    if (worker.step == schedule_.steps) return k == 0 ? merge_at_the_end() : push_the_last(worker);
    if (!is_there(k, worker.step + 1)) return false;
    ++worker.step;
    worker.weights = plus(worker.weights, -1,
                          worker.optimiser.step(schedule_, gradient_of(schedule_, static_cast<int>(k), worker.step, worker.weights)));
    if (worker.step % options_.period != 0) return true;
    if (k == 0) {
      merge_now();
    } else {
      push(k);
    }
    return true;
  }

  // Who is next in the list of what worker k takes in this step.
  std::optional<std::size_t> next_source(std::size_t k, int step) {
    Worker& worker = workers_[k];
    if (worker.taken == options_.taken[k].size() || options_.taken[k][worker.taken].step != step) return std::nullopt;
    return static_cast<std::size_t>(options_.taken[k][worker.taken++].source);
  }

  void push(std::size_t k) {
    Worker& worker = workers_[k];
    while (next_source(k, worker.step)) {
      const Push told = worker.from_coordinator.front();
      worker.from_coordinator.pop_front();
      while (worker.own.front().number != told.number) worker.own.pop_front();
      const Vector before = worker.own.front().weights;
      worker.own.pop_front();
      for (std::size_t i = 0; i < before.size(); ++i) {
        if (deal_[k].values[i] == 1) continue;
        worker.weights[i] += told.weights[i] - before[i];
        for (Push& later : worker.own) later.weights[i] += told.weights[i] - before[i];
      }
    }
    worker.to_coordinator.push_back({++worker.pushes, false, worker.weights});
    worker.own.push_back(worker.to_coordinator.back());
  }

  bool push_the_last(Worker& worker) {
    worker.finished = true;
    worker.to_coordinator.push_back({worker.step % options_.period != 0 ? ++worker.pushes : 0, true, worker.weights});
    return true;
  }

  Push take(std::size_t source) {
    Push push = workers_[source].to_coordinator.front();
    workers_[source].to_coordinator.pop_front();
    if (push.number > 0) latest_[source] = push.weights;
    return push;
  }

  void merge_now() {
    latest_[0] = workers_[0].weights;
    std::vector<int> numbers(workers_.size());
    while (const std::optional<std::size_t> source = next_source(0, workers_[0].step)) numbers[*source] = take(*source).number;
    model_ = merged(model_, deal_, latest_);
    workers_[0].weights = part_of(model_, deal_[0]);
    for (std::size_t k = 1; k < workers_.size(); ++k) {
      if (numbers[k] > 0) workers_[k].from_coordinator.push_back({numbers[k], false, part_of(model_, deal_[k])});
    }
  }

  // The coordinator has done its steps, and merges one after the other what others still push.
  bool merge_at_the_end() {
    if (schedule_.steps % options_.period != 0) latest_[0] = workers_[0].weights;
    if (workers_[0].taken == options_.taken[0].size()) return workers_[0].finished = true;
    const auto source = static_cast<std::size_t>(options_.taken[0][workers_[0].taken].source);
    if (workers_[source].to_coordinator.empty()) return false;
    ++workers_[0].taken;
    const Push push = take(source);
    if (push.last) return true;
    model_ = merged(model_, deal_, latest_);
    workers_[source].from_coordinator.push_back({push.number, false, part_of(model_, deal_[source])});
    return true;
  }

  const Schedule& schedule_;
  const IstOptions& options_;
  const std::vector<IstPart>& deal_;
  Vector model_;
  std::vector<Worker> workers_;
  std::vector<Vector> latest_;  // By worker: what the coordinator has of it.
};

}  // namespace

Result ist(const Schedule& schedule, const IstOptions& options) {
  return options.waits ? waiting_ist(schedule, options) : FreeIst(schedule, options).run();
}

}  // namespace starling::strategy::reference
