// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The loss around the ways that runs took: the plane in which all their snapshots of the weights differ most, the loss on a grid of points
// of that plane, and the snapshots themselves, each where it projects to and with the loss that it really has.
//
//   const std::optional<Landscape> landscape = make_landscape(ways, test, make_replica, {.jobs = 2});
//   write_file_atomically("landscape.json", to_json(*landscape), "landscape");
//
// docs/landscape.md says what the picture shows and what it does not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "starling/compute/replica.h"
#include "starling/data/samples.h"
#include "starling/run/snapshots.h"

namespace starling::lab {

// What one run left.
struct WeightTrajectory {
  std::string name{};
  std::vector<run::Snapshot> snapshots{};
};

struct LandscapeOptions {
  std::string title{};
  std::size_t grid = 25;  // Points along each side, at least 2.
  double margin = 0.2;    // Room around the snapshots on each side, as a fraction of what they span.
  int jobs = 1;           // Evaluations at a time. The result does not depend on it.
  std::function<void(std::size_t done, std::size_t all)> progressed{};  // After each evaluation; never on two threads at once.
  std::function<bool()> stop{};                                         // Asked after every batch, on any thread; true ends the work.
};

struct LandscapePoint {
  std::uint64_t step = 0;
  double epoch = 0;
  std::uint64_t samples = 0;
  double x = 0;
  double y = 0;
  double loss = 0;                   // At the snapshot's own weights, not at those of the plane.
  std::optional<double> accuracy{};  // Where answers are classes.
};

struct LandscapeTrajectory {
  std::string name{};
  std::vector<LandscapePoint> points{};
};

struct Landscape {
  std::string title{};
  std::string loss = "test loss";  // What is shown.
  std::size_t samples = 0;         // That it is the mean over.
  std::size_t weights = 0;         // Of the model, buffers included.
  std::array<double, 2> explained_variance{};
  std::vector<double> x{};  // Ascending, as y.
  std::vector<double> y{};
  std::vector<std::vector<double>> grid{};  // For each y, the loss at all x; perhaps not finite.
  std::vector<LandscapeTrajectory> trajectories{};
  std::vector<std::string> notes{};  // What a reader should know, such as snapshots that were left out.
};

using MakeReplica = std::function<std::unique_ptr<compute::Replica>()>;

// Makes one replica per job, on the caller's thread. Nothing if it was stopped. Throws UserError if the snapshots are of another model than
// the replicas, fewer than two are finite, or all are equal.
std::optional<Landscape> make_landscape(const std::vector<WeightTrajectory>& trajectories, const data::Samples& samples,
                                        const MakeReplica& make_replica, const LandscapeOptions& options);

// `count` samples, classes as evenly as they allow, each class drawn at random; ascending. Always the same for the same samples.
std::vector<std::uint32_t> choose_evenly(const data::Samples& samples, std::size_t count);

// The formats of docs/landscape.md.
std::string to_json(const Landscape& landscape);
std::string grid_to_csv(const Landscape& landscape);          // x,y,loss
std::string trajectories_to_csv(const Landscape& landscape);  // run,step,epoch,samples,x,y,loss,accuracy

// A few lines for people: explained variance, and from where to where losses go.
std::string to_text(const Landscape& landscape);

}  // namespace starling::lab
