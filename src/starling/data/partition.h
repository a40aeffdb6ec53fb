// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Which worker has which samples.
//
//   shared            all workers go through the whole set together: each step deals the next samples of one common order to them, so that
//   a
//                     step of P workers is a batch of P times the size (see worker_batches.h; here every worker has all)
//   queue             the same order, but nobody's share is fixed: whoever is ready takes the next batch (here every worker has all)
//   none              every worker has the whole set, and goes through all of it in an order of its own
//   dataset           random chunks, sizes differing by at most one
//   labels            the labels, in random order, are dealt to the workers in turn; each worker has the samples of its labels, of which as
//                     many are kept, at random, as the worker with the fewest has
//   dirichlet:ALPHA   of each class, workers get shares drawn from a Dirichlet distribution: alike for large ALPHA, each worker mostly
//                     samples of few classes for small ones
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "starling/data/samples.h"

namespace starling::data {

// The indices of each worker's samples, ascending. A function of the samples' count and labels, the text, the number of workers and the
// seed. Every worker has at least one. Throws UserError for an unknown partition, and for one that these samples or so many workers do not
// allow. Precondition: workers >= 1.
std::vector<std::vector<std::uint32_t>> partition(const Samples& samples, const std::string& specification, int workers,
                                                  std::uint64_t seed);

// Samples to judge models by instead of training on them: so large a fraction of all, chosen at random, ascending.
std::vector<std::uint32_t> hold_out(const Samples& samples, double fraction, std::uint64_t seed);

// For help and hints.
std::vector<std::string> partition_names();

}  // namespace starling::data
