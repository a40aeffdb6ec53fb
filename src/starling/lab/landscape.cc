// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/landscape.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/base/work_pool.h"
#include "starling/data/shuffle.h"
#include "starling/lab/parallel.h"
#include "starling/lab/principal_components.h"
#include "starling/run/evaluation.h"

namespace starling::lab {
namespace {

// Thrown between two batches by an evaluation that is to end.
struct Stopped {};

using Fill = std::function<void(std::size_t, std::span<float>)>;
using Keep = std::function<void(std::size_t, const compute::Evaluation&)>;

// Losses at many points: those of a grid, and those of snapshots.
class Evaluator {
 public:
  Evaluator(const data::Samples& samples, const MakeReplica& make_replica, const LandscapeOptions& options)
      : samples_(samples), options_(options) {
    for (int job = 0; job < options.jobs; ++job) replicas_.push_back(make_replica());
  }

  std::size_t weights() const { return replicas_[0]->layout().size(); }

  // What `fill(i, weights)` puts into the weights is evaluated for all i below `count`, and the outcome given to `keep(i, …)`, which may
  // be called on several threads at once, with different i. False if it was stopped.
  bool run(WorkPool& pool, std::size_t count, const Fill& fill, const Keep& keep);

 private:
  void work(compute::Replica& replica, std::size_t count, const Fill& fill, const Keep& keep);

  const data::Samples& samples_;
  const LandscapeOptions& options_;
  std::vector<std::unique_ptr<compute::Replica>> replicas_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> ends_{false};  // Asked to stop, or a job failed.
  std::mutex mutex_;               // Guards what follows.
  std::size_t done_ = 0;
};

bool Evaluator::run(WorkPool& pool, std::size_t count, const Fill& fill, const Keep& keep) {
  run_parallel(pool, static_cast<int>(replicas_.size()), [&](int job) {
    try {
      work(*replicas_[static_cast<std::size_t>(job)], count, fill, keep);
    } catch (const Stopped&) {
      ends_ = true;
    } catch (...) {
      ends_ = true;
      throw;
    }
  });
  return !ends_;
}

void Evaluator::work(compute::Replica& replica, std::size_t count, const Fill& fill, const Keep& keep) {
  const auto look_around = [&] {
    if (ends_ || (options_.stop && options_.stop())) throw Stopped{};
  };
  for (std::size_t i = next_.fetch_add(1); i < count; i = next_.fetch_add(1)) {
    fill(i, replica.weights());
    keep(i, run::evaluate_part(replica, samples_, 1, 0, look_around));
    const std::lock_guard lock(mutex_);
    ++done_;
    if (options_.progressed) options_.progressed(done_, count);
  }
}

// A snapshot that has a place in the plane, and whose it is.
struct Placed {
  std::size_t trajectory = 0;
  const run::Snapshot* snapshot = nullptr;
};

// All whose weights are finite; the others are noted.
std::vector<Placed> placed_ones(const std::vector<WeightTrajectory>& trajectories, std::size_t weights, std::vector<std::string>& notes) {
  std::vector<Placed> result;
  for (std::size_t i = 0; i < trajectories.size(); ++i) {
    for (const run::Snapshot& snapshot : trajectories[i].snapshots) {
      if (snapshot.weights.size() != weights) {
        throw UserError(fmt::format("the snapshot of step {} of '{}' has {} weights, but the model has {}: it is of another model",
                                    snapshot.step, trajectories[i].name, snapshot.weights.size(), weights));
      }
      if (run::all_finite(snapshot.weights)) {
        result.push_back({.trajectory = i, .snapshot = &snapshot});
      } else {
        notes.push_back(
            fmt::format("the snapshot of step {} of '{}' has weights that are not finite: left out", snapshot.step, trajectories[i].name));
      }
    }
  }
  return result;
}

PrincipalComponents plane_of(const std::vector<Placed>& placed, WorkPool& pool, std::vector<std::string>& notes) {
  if (placed.size() < 2) {
    throw UserError(fmt::format("there {} of finite weights, but a way needs at least two: keep more with starling train --snapshots 3",
                                placed.empty() ? "is no snapshot" : "is only one snapshot"));
  }
  std::vector<std::span<const float>> points;
  points.reserve(placed.size());
  for (const Placed& one : placed) points.emplace_back(one.snapshot->weights);
  if (points[0].size() < 2) throw UserError("the model has a single weight: there is no plane to look at, only a line");
  PrincipalComponents plane = principal_components(points, 2, pool);
  if (plane.determined == 0) {
    throw UserError(
        fmt::format("all {} snapshots are equal: the weights never moved, and there is no direction to look along. Is the "
                    "learning rate 0?",
                    placed.size()));
  }
  if (plane.determined == 1) notes.emplace_back("all snapshots lie on a line: the second axis is any that is orthogonal to it");
  return plane;
}

using Coordinates = std::vector<std::vector<double>>;  // Of the snapshots, along both axes.

// From the least to the most of these, and the margin. Where they do not differ, as wide as `otherwise`.
std::vector<double> side(const Coordinates& coordinates, std::size_t axis, double otherwise, const LandscapeOptions& options) {
  double low = coordinates[0][axis];
  double high = low;
  for (const std::vector<double>& point : coordinates) {
    low = std::min(low, point[axis]);
    high = std::max(high, point[axis]);
  }
  if (otherwise > 0) {
    low -= otherwise / 2;
    high += otherwise / 2;
  }
  const double room = options.margin * (high - low);
  std::vector<double> values(options.grid);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(options.grid - 1);
    values[i] = (low - room) * (1 - part) + (high + room) * part;
  }
  return values;
}

Coordinates coordinates_of(const std::vector<Placed>& placed, const PrincipalComponents& plane) {
  Coordinates coordinates;
  coordinates.reserve(placed.size());
  for (const Placed& one : placed) coordinates.push_back(plane.project(one.snapshot->weights));
  return coordinates;
}

double mean_loss(const compute::Evaluation& evaluation) { return evaluation.loss_sum / static_cast<double>(evaluation.samples); }

// Puts what the evaluations gave, first those of the snapshots, then those of the grid row by row, to where it belongs.
void add_outcomes(const std::vector<Placed>& placed, const Coordinates& coordinates, bool has_labels,
                  const std::vector<compute::Evaluation>& outcomes, Landscape& landscape) {
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const run::Snapshot& snapshot = *placed[i].snapshot;
    LandscapePoint point{.step = snapshot.step, .epoch = snapshot.epoch, .samples = snapshot.samples};
    point.x = coordinates[i][0];
    point.y = coordinates[i][1];
    point.loss = mean_loss(outcomes[i]);
    if (has_labels) point.accuracy = static_cast<double>(outcomes[i].correct) / static_cast<double>(outcomes[i].samples);
    landscape.trajectories[placed[i].trajectory].points.push_back(point);
  }
  std::size_t next = placed.size();
  landscape.grid.assign(landscape.y.size(), std::vector<double>(landscape.x.size()));
  for (std::vector<double>& row : landscape.grid) {
    for (double& loss : row) loss = mean_loss(outcomes[next++]);
  }
}

}  // namespace

std::optional<Landscape> make_landscape(const std::vector<WeightTrajectory>& trajectories, const data::Samples& samples,
                                        const MakeReplica& make_replica, const LandscapeOptions& options) {
  STARLING_CHECK(options.grid >= 2 && options.margin >= 0 && options.jobs >= 1, std::string("a landscape of no extent"));
  STARLING_CHECK(samples.count > 0, std::string("no samples to evaluate"));
  Evaluator evaluator(samples, make_replica, options);
  Landscape result{.title = options.title, .samples = samples.count, .weights = evaluator.weights()};
  const std::vector<Placed> placed = placed_ones(trajectories, evaluator.weights(), result.notes);
  WorkPool pool(options.jobs);
  const PrincipalComponents plane = plane_of(placed, pool, result.notes);
  const Coordinates coordinates = coordinates_of(placed, plane);
  result.explained_variance = {plane.explained_variance[0], plane.explained_variance[1]};
  result.x = side(coordinates, 0, 0, options);
  const double width = (result.x.back() - result.x.front()) / (1 + 2 * options.margin);
  result.y = side(coordinates, 1, plane.determined > 1 ? 0 : width, options);
  for (const WeightTrajectory& trajectory : trajectories) result.trajectories.push_back({.name = trajectory.name});

  std::vector<compute::Evaluation> outcomes(placed.size() + options.grid * options.grid);
  const auto fill = [&](std::size_t i, std::span<float> weights) {
    if (i < placed.size()) {
      std::copy(placed[i].snapshot->weights.begin(), placed[i].snapshot->weights.end(), weights.begin());
      return;
    }
    const std::size_t cell = i - placed.size();
    plane.reconstruct(std::array{result.x[cell % options.grid], result.y[cell / options.grid]}, weights);
  };
  const auto keep = [&](std::size_t i, const compute::Evaluation& evaluation) { outcomes[i] = evaluation; };
  if (!evaluator.run(pool, outcomes.size(), fill, keep)) return std::nullopt;
  add_outcomes(placed, coordinates, samples.has_labels(), outcomes, result);
  return result;
}

std::vector<std::uint32_t> choose_evenly(const data::Samples& samples, std::size_t count) {
  constexpr std::uint64_t kSeed = 1;
  std::vector<std::uint32_t> order(samples.count);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  RandomStream stream(kSeed, 0, "landscape samples");
  data::shuffle(std::span(order), stream);
  if (samples.has_labels()) {
    // The first of every class, then the second of every class, …
    std::vector<std::size_t> seen(static_cast<std::size_t>(samples.classes));
    std::vector<std::size_t> turn(samples.count);
    for (const std::uint32_t index : order) turn[index] = seen[static_cast<std::size_t>(samples.labels[index])]++;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return turn[a] < turn[b]; });
  }
  order.resize(std::min(count, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace starling::lab
