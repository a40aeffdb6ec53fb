// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Ranks under a virtual clock: the same program as on any other fabric, a thousand ranks on a laptop, and a run that depends on the
// configuration and its seed alone, never on the machine, its load or its number of cores.
//
// Every rank is a fibre of the calling thread. One runs at a time, until it waits for something; then the clock moves to the next event,
// and events of the same time happen in the order in which they were caused. Only the work given to compute() runs on other threads, where
// it can disturb nobody. What fibres share is the thread: thread_local variables are not per rank here.
//
//   SimOptions options;
//   options.ranks = 1000;
//   options.network.link = {.latency = 50us, .bytes_per_second = 1.25e9};
//   SimFabric fabric(options);
//   RunReport report = fabric.run(body);
//   std::cout << format_duration(fabric.end_time());
#pragma once

#include "starling/fabric/fabric.h"
#include "starling/fabric/sim/network.h"
#include "starling/fabric/sim/options.h"

namespace starling::fabric {

class SimFabric : public Fabric {
 public:
  // Throws UserError if the options are out of range.
  explicit SimFabric(SimOptions options);

  int size() const override { return options_.ranks; }

  // Runs on the calling thread. A rank that was crashed and not restarted ends as crashed, and does not make others fail by itself.
  RunReport run(const Body& body) override;

  // Of the last run.
  Time end_time() const { return end_time_; }
  const sim::MessageFaults& message_faults() const { return message_faults_; }

 private:
  SimOptions options_;
  Time end_time_ = Time::zero();
  sim::MessageFaults message_faults_;
};

}  // namespace starling::fabric
