// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Windows of the MPI fabric. Where all ranks are on one host a window is memory that they share; elsewhere it is reached by MPI's one-sided
// operations (passive target), all of them accumulating ones, which are atomic component by component: reading is adding nothing.
//
// Of one-sided operations MPI promises that only for the same operation and for reading (accumulate_ops = same_op_no_op, its default): a
// write() must not meet an add() to the same component. Programs write before others add, or leave a component to one of the two.
#pragma once

#include <memory>
#include <string>

#include "starling/fabric/mpi/world.h"
#include "starling/fabric/window.h"

namespace starling::fabric::mpi {

// The memory of a window at its home. Lives until the run has ended everywhere.
class WindowMemory {
 public:
  virtual ~WindowMemory() = default;
};

// At the home: makes the memory, filled with zeros, and says in `window` where others find it. With the lock held where windows are
// one-sided.
std::unique_ptr<WindowMemory> make_window_memory(World& world, OpenedWindow& window);

// At any rank. Throws std::runtime_error if memory cannot be mapped.
std::shared_ptr<Window> open_window(World& world, const OpenedWindow& window);

}  // namespace starling::fabric::mpi
