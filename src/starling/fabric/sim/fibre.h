// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A function with a stack of its own that can stop in the middle and be gone on with: how a thousand ranks live in one thread. On top of
// Boost.Context, what this adds is what the language keeps per thread and must be per fibre (the exceptions being handled), and what the
// sanitizers must be told to follow the change of stacks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace starling::fabric::sim {

// All calls from one thread. The body must not throw. A fibre must have ended before it is destroyed.
class Fibre {
 public:
  Fibre(std::size_t stack_bytes, std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // From outside: runs the body until it yields or ends.
  void resume();

  // From inside the body: goes back to the caller of resume(), and returns at the next resume().
  void yield();

  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace starling::fabric::sim
