// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of this process. Messages move without a copy, windows are plain memory, and the native all-reduce adds up in
// shared memory.
//
// A rank that waits spins for some microseconds before it sleeps, but only when the ranks are no more than the cores this process may
// use; otherwise it sleeps at once and leaves the core to those that have work.
#pragma once

#include "starling/fabric/fabric.h"

namespace starling::fabric {

class ThreadsFabric : public Fabric {
 public:
  // Throws UserError if the options are out of range.
  explicit ThreadsFabric(FabricOptions options);

  int size() const override { return options_.ranks; }
  RunReport run(const Body& body) override;

 private:
  FabricOptions options_;
};

}  // namespace starling::fabric
