// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a collective costs on a fabric: run it, check its result, report time, messages and bytes. In the simulator it answers "which
// all-reduce suits my network?" without the network.
#pragma once

#include <cstdint>
#include <string>

#include "starling/base/time.h"
#include "starling/collective/collective.h"
#include "starling/fabric/fabric.h"

namespace starling::lab {

struct CollectiveTrial {
  std::string operation = "all-reduce";  // One of collective_operations().
  collective::Algorithm algorithm = collective::Algorithm::automatic;
  int subgroup = 8;
  std::size_t floats = 61706;
  int repeat = 1;
};

// The operations in the order of help texts: all-reduce, reduce-scatter, all-gather, broadcast, barrier.
const std::vector<std::string>& collective_operations();

// The algorithms an operation can be run with; the first is its default.
std::vector<collective::Algorithm> algorithms_of(const std::string& operation);

// Throws UserError if the operation or its algorithm does not exist.
void check_algorithm(const std::string& operation, collective::Algorithm algorithm);

struct CollectiveResult {
  Duration time = Duration::zero();  // Per repetition, of the rank that took longest.
  double messages = 0;               // Sent per repetition by the rank that sent most; likewise below.
  double bytes = 0;
};

// Throws UserError for an operation or algorithm that does not exist, and std::runtime_error with the report if a rank does not finish or
// a result is wrong.
CollectiveResult run_collective_trial(fabric::Fabric& fabric, const CollectiveTrial& trial);

}  // namespace starling::lab
