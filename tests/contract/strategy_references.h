// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What each strategy computes, written plainly: one thread, loops over vectors, nothing shared with the strategies themselves. A reference
// replays a schedule: given who reached the server (or the centre) in which order, everything else follows.
//
//   Schedule schedule{.workers = 2, .steps = 3, .weights = {1, 2}, .gradient = gradient, .lr = 0.1};
//   schedule.order = in_turn(2, 3, {Kind::push, Kind::pull});
//   Result expected = async(schedule);
//
// All arithmetic is in double, and rounded to float only where a gradient is asked for and at the end. So strategies, which compute in
// float, agree with it to a tolerance and not bit for bit.
//
// Between two events a worker computes on its own; so the references let it run only when its next event comes, and check that this is the
// event which its own course leads to. An order that cannot be is a broken invariant.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace starling::strategy::reference {

enum class Kind {
  push,      // An update reaches the server, and is applied.
  pull,      // The server hands out its weights. They are computed on from then on.
  exchange,  // easgd, ea_msgd: a worker and the centre move towards each other, in one.
  read,      // ea_wild: a group reads the centre,
  number,    // takes a number in the order of all additions (only hogwild needs to know),
  add,       // and later adds its difference to it. hogwild: the same by every worker, with the weights themselves.
  step,      // gosgd, ad_psgd: a gradient is computed,
  merge,     // and what the peer has pushed is mixed in.
};

struct Event {
  int worker = 0;
  Kind kind = Kind::push;
  int peer = -1;  // gosgd, ad_psgd: to whom a push goes, from whom a merge comes.
};

// How a server that minds staleness scales what it applies; τ is its version less the one that was pulled.
enum class Damping {
  none,
  by_staleness,           // 1 / max(1, τ)
  by_staleness_plus_one,  // 1 / (τ + 1)
};

struct Schedule {
  int workers = 1;
  int steps = 0;                 // Gradients per worker.
  std::vector<float> weights{};  // The first ones, everywhere.
  // The gradient of one worker in step 1, 2, … at these weights.
  std::function<std::vector<float>(int worker, int step, const std::vector<float>& weights)> gradient{};
  double lr = 0.1;
  double momentum = 0;  // μ; 0 is plain SGD. Heavy ball: v = μ v + g; w -= lr v.
  Damping damping = Damping::none;
  std::vector<Event> order{};  // By arrival. Not used by those that run in lockstep.
  bool first_pull = false;  // Every worker's first event is the pull of its first weights. Others are free to have it; downpour must know.
};

struct Result {
  std::vector<float> model{};                  // What the run gives.
  std::vector<std::vector<float>> replicas{};  // By worker, at the end.
};

// Worker 0, 1, …, each with all these events at once, and so on `times` times.
std::vector<Event> in_turn(int workers, int times, const std::vector<Kind>& kinds);

// Mean gradient, one step of the optimiser with it, the same everywhere.
Result sync(const Schedule& schedule);

// Every worker steps by itself and keeps its velocity; after every `period` steps all go on from the mean of the weights. The model is the
// mean at the end.
Result local_sgd(const Schedule& schedule, int period);

// McMahan et al. Round r: its clients start from the model and make `local_steps` steps, with velocities that start at 0; the model becomes
// the mean of their weights, by their samples. Steps are numbered over all rounds, so that a client's first in round r is (r - 1)
// local_steps + 1. steps = rounds × local_steps. At the end every replica is the model.
struct FedAvgOptions {
  int local_steps = 1;
  std::vector<double> samples{};            // By worker.
  std::vector<std::vector<int>> clients{};  // By round.
};
Result fedavg(const Schedule& schedule, const FedAvgOptions& options);

// Ho et al. Velocity at the worker: v = μ v + g; pushes -lr v. The server adds 1/workers of it. Until it pulls, a worker sees its own
// update and no other. Checks that a worker which has made c steps pulls only if the slowest has made c - bound. Order: push, pull of each
// worker by turns; the last pull may be left out.
Result ssp(const Schedule& schedule, int bound);

// Asynchronous server: one velocity, at the server: v = μ v + g; w -= lr v. Order as for ssp; without a pull a worker goes on on its old
// weights.
Result async(const Schedule& schedule);

// Dean et al. Velocity at the worker, which moves its own weights by -lr v in every step and adds that up. After every `push_period` steps
// the server adds the sum; after every `fetch_period` steps the worker's weights become the server's, whatever is not yet pushed. Where
// both are due, it pushes first. What is left over after the last step is pushed at the very end.
Result downpour(const Schedule& schedule, int push_period, int fetch_period);

// Hermans: accumulated gradient normalisation. `period` steps at the worker, with its velocity; then the server adds
// (w_after - w_before) / period, and the worker pulls. What is left over at the end is a commit of fewer steps, divided by their number.
Result agn(const Schedule& schedule, int period);

// Zheng et al. The server keeps the weights each worker pulled, b: g' = g + λ g ⊙ g ⊙ (w - b); then v = μ v + g'; w -= lr v. Adaptive:
// element by element λ / √(s + 1e-7), with s = 0.95 s + 0.05 g² first, one s for all workers. Order as for async.
struct DcAsgdOptions {
  double lambda = 0.04;
  bool adaptive = false;
};
Result dc_asgd(const Schedule& schedule, const DcAsgdOptions& options);

// Zhang et al. In steps that `period` divides, both from the weights before the step, d = alpha (w - centre): the worker's own step and
// w -= d; centre += d. In all others the step alone. The model is the centre. Order: exchange; empty is by turns.
Result easgd(const Schedule& schedule, double alpha, int period);

// The same with Nesterov's momentum at the worker: v = μ v + g; w -= lr (g + μ v). The elastic term is not part of it.
Result ea_msgd(const Schedule& schedule, double alpha, int period);

// The same without a lock. Groups of group_size neighbours step together, with their mean gradient; in steps that `period` divides the
// group reads the centre, moves with d from what it has read, and adds d to the centre some time later, before it reads again. An event's
// worker is any member of the group. A read is of the whole centre at once: what a reader sees in the middle of an addition is not
// modelled.
struct EaWildOptions {
  double alpha = 0.1;
  int period = 1;
  int group_size = 1;
  bool nesterov = false;
};
Result ea_wild(const Schedule& schedule, const EaWildOptions& options);

// Niu et al. One set of weights. A worker reads them, computes, makes a step with a velocity of its own, takes a number, and adds the step,
// times what the damping says: staleness is its number less those that were taken when it read. Order: read, number, add of each worker by
// turns. At the end every replica is the model.
Result hogwild(const Schedule& schedule);

// Blot et al. Every worker has a weight α, 1/workers at first, and a velocity. step: x -= lr v, with the gradient at x. push: α = α/2, and
// (x, α) is under way to the peer. merge: the first from the peer that is under way, x = (α x + α' x') / (α + α'), α += α'. Order: all
// three. The model is that of worker 0. Checks that nothing is under way in the end, and that all α add up to 1.
Result gosgd(const Schedule& schedule);

// Lian et al. Workers of even number are active, the others passive. An active one: push, x is under way; step, the gradient at x; merge,
// x = (x + x') / 2, then x -= lr v. Where it did not push, it steps at once, as a passive one always does. Merge of a passive one: its x is
// the answer, which is under way from then on (a push of its own says nothing); x = (x + x') / 2. Order and model as for gosgd.
Result ad_psgd(const Schedule& schedule);

// Every worker has weights and a velocity of its own. step: its gradient g at its weights, and a step with it; g is under way to all peers.
// merge: the first gradient of the peer that is under way, and a step with weight × it. Order: both. The model is that of worker 0.
// `steps` are of all workers together.
struct StreamOptions {
  double weight = 1;
  std::function<bool(int worker, int peer)> are_peers{};
  bool momentum = true;  // Otherwise plain SGD, whatever the schedule says.
};
Result streams(const Schedule& schedule, const StreamOptions& options);

// A message that a worker took while it exchanged its gradient `step`, or after the last.
struct Taken {
  int step = 0;
  int source = 0;
};

// Yuan et al., Bahi et al. Worker k trains its part of the model, the components `indices`, in which it has a say of `values`; worker 0 is
// the coordinator. `deals`: the parts of all workers, one list per deal. Waiting, all exchange after every `period` steps: the model
// becomes the weighted sum of the parts, and parts of it, of the next deal if they are dealt anew, are computed on; velocities then start
// at 0. Without waiting a worker's exchange is a push, before which it takes what the coordinator has told it; the coordinator's is a merge
// of all it takes, of which it tells those whose pushes it took. `taken` says who takes what. What a worker is told moves the components it
// shares to the merged ones, but for its own progress since the push. At the end everybody pushes and has its part of the model.
struct IstPart {
  std::vector<std::size_t> indices{};
  std::vector<double> values{};
};
struct IstOptions {
  int period = 1;
  bool waits = true;
  bool deals_anew = false;
  bool zero_unowned = false;  // Components that nobody has in the first deal start at 0.
  std::vector<std::vector<IstPart>> deals{};
  std::vector<std::vector<Taken>> taken{};  // By worker.
};
Result ist(const Schedule& schedule, const IstOptions& options);

}  // namespace starling::strategy::reference
