// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Asynchronous iterations, simulated directly: M blocks (workers), each with a value x_l; at step k every block l of S(k) becomes
//
//   x_l(k) = T^(beta_l)( Σ_j E_j x_j(rho_j(k)) ),          T(x) = x - gamma grad f(x),
//
// and the others keep theirs (Bahi et al., after Chazan and Miranker, and Bertsekas and Tsitsiklis). The E_j are diagonal, not negative,
// and sum to I. Each x_l is a whole vector, of which E_l lets through what block l is responsible for: a part of the components (disjoint
// masks), or everything with weight 1/M (uniform masks).
//
// The macro-iterations, or sweeps, of a run are the times 0 = k_0 < k_1 < k_2 < … where k_(m+1) is the first time such that
//   - the value that every block has at k_(m+1) was computed from values of times k_m or later, and
//   - so was every value that is computed afterwards.
// In one sweep everybody forgets what was before the last one began. If an update is a contraction with factor alpha_l, then
// E_m = max over k >= k_m of the error after step k obeys E_(m+1) <= max alpha_l · E_m, for every schedule and all delays; if k_m exists
// for every m, which is what "every block is updated for ever, and all labels tend to infinity" says, the iteration converges.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "starling/lab/converge_problem.h"
#include "starling/lab/converge_schedule.h"

namespace starling::lab {

enum class Masks { disjoint, uniform };

// all: T moves all components, and the mask selects; block: the local steps of a block move its own components only, as a worker does that
// trains its part of a model while the rest stands still. The latter needs disjoint masks.
enum class StepsOn { all, block };

// max: max |e_i|; weighted: max |e_i| / w_i; l2: the square root of Σ e_i². Of a block's error e = x_l - x* only those components count
// that E_l lets through.
enum class Norm { max, weighted, l2 };

struct IterationSetup {
  const Problem* problem = nullptr;  // Outlives the iteration.
  std::size_t blocks = 4;
  Masks masks = Masks::disjoint;
  StepsOn steps_on = StepsOn::all;
  std::vector<int> local_steps{};  // beta_l, one per block.
  double step_size = 1;
  Norm norm = Norm::max;
  std::vector<double> weights{};  // For the weighted norm: positive, one per component.
  std::vector<double> start{};    // x_l(0), the same for all.
};

// The components of block l under disjoint masks: [begin, end), as equal in length as can be.
struct BlockRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};
BlockRange block_range(std::size_t dimension, std::size_t blocks, std::size_t block);

// The diagonals of the E_l.
std::vector<std::vector<double>> make_masks(Masks masks, std::size_t dimension, std::size_t blocks);

// Throws BrokenInvariant unless the masks are not negative and sum to the identity, to rounding.
void check_masks(const std::vector<std::vector<double>>& masks, std::size_t dimension);

struct UpdateRecord {
  std::uint32_t step = 0;
  std::uint32_t block = 0;
  std::uint32_t oldest = 0;  // The smallest of its labels.
};

struct IterationRecord {
  std::vector<double> errors{};              // After step 0, 1, …: the largest of the blocks' errors.
  std::vector<UpdateRecord> updates{};       // In order.
  std::vector<double> first_block_errors{};  // Per block, at the start and at the end.
  std::vector<double> last_block_errors{};
  std::vector<double> last_state{};              // Σ E_l x_l at the end.
  std::optional<std::uint64_t> overflow_step{};  // The error grew beyond all bounds: the run ended after this step.
  std::uint64_t trace_stride = 1;
  std::vector<std::vector<double>> traces{};  // Per block: its error after step 0, trace_stride, 2 trace_stride, …
};

// Runs steps 1 … iterations. Keeps of every block only what its mask lets through.
IterationRecord run_iteration(const IterationSetup& setup, Schedule& schedule, std::uint64_t iterations);

// The same as the definition has it: every block keeps a whole vector, and Σ E_j x_j is formed with the masks, which may be any that
// check_masks() accepts. For disjoint masks it gives the same bits as run_iteration().
IterationRecord run_masked_iteration(const IterationSetup& setup, const std::vector<std::vector<double>>& masks, Schedule& schedule,
                                     std::uint64_t iterations);

// k_0, k_1, …, as far as they exist within the run.
std::vector<std::uint64_t> macro_iterations(const std::vector<UpdateRecord>& updates, std::size_t blocks);

// E_0, E_1, …: for each of these times the largest error from then on.
std::vector<double> errors_from(const std::vector<double>& errors, const std::vector<std::uint64_t>& times);

// For each of these times the largest error from then until the next. It shows how an error grows, which errors_from() cannot.
std::vector<double> errors_within(const std::vector<double>& errors, const std::vector<std::uint64_t>& times);

}  // namespace starling::lab
