// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Why the simulator's ranks are fibres: the time it takes to go from one rank to the next, for ranks that are threads and pass a token, for
// ucontext, for the fibres as they are, and for Boost.Context alone.
#include <fmt/format.h>
#include <ucontext.h>

#include <boost/context/fiber.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "bench/measure.h"
#include "starling/fabric/sim/fibre.h"

namespace starling::bench {
namespace {

constexpr int kTokenSwitches = 50'000;
constexpr int kSwitches = 1'000'000;

double measure_token(int ranks) {
  struct Rank {
    std::mutex mutex;
    std::condition_variable wake;
    bool has_token = false;
  };
  std::vector<Rank> states(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  int switches = 0;  // Only ever touched by the rank with the token.
  const auto pass_to = [&](std::size_t rank) {
    const std::lock_guard lock(states[rank].mutex);
    states[rank].has_token = true;
    states[rank].wake.notify_one();
  };
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    threads.emplace_back([&, rank] {
      for (bool last = false; !last;) {
        std::unique_lock lock(states[rank].mutex);
        states[rank].wake.wait(lock, [&] { return states[rank].has_token; });
        states[rank].has_token = false;
        lock.unlock();
        last = ++switches > kTokenSwitches;
        pass_to((rank + 1) % states.size());
      }
    });
  }
  const auto begin = std::chrono::steady_clock::now();
  pass_to(0);
  for (std::thread& thread : threads) thread.join();
  return seconds_since(begin) / kTokenSwitches;
}

ucontext_t scheduler;

void yield_for_ever(unsigned low, unsigned high) {
  auto* self = reinterpret_cast<ucontext_t*>(static_cast<std::uintptr_t>(high) << 32 | low);
  for (;;) swapcontext(self, &scheduler);
}

constexpr std::size_t kStack = 65536;

// In a function of its own: getcontext returns twice in the eyes of the compiler.
__attribute__((noinline)) void prepare(ucontext_t& context, char* stack) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStack;
  const auto address = reinterpret_cast<std::uintptr_t>(&context);
  makecontext(&context, reinterpret_cast<void (*)()>(yield_for_ever), 2, static_cast<unsigned>(address),
              static_cast<unsigned>(address >> 32));
}

double measure_ucontext(int ranks) {
  std::vector<ucontext_t> contexts(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<char[]>> stacks;
  for (ucontext_t& context : contexts) {
    stacks.push_back(std::make_unique<char[]>(kStack));
    prepare(context, stacks.back().get());
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSwitches; ++i) swapcontext(&scheduler, &contexts[static_cast<std::size_t>(i % ranks)]);
  return seconds_since(begin) / kSwitches;
}

double measure_fibre(int ranks) {
  std::vector<std::unique_ptr<fabric::sim::Fibre>> fibres;
  bool stop = false;
  for (int rank = 0; rank < ranks; ++rank) {
    fibres.push_back(std::make_unique<fabric::sim::Fibre>(65536, [&fibres, &stop, rank] {
      while (!stop) fibres[static_cast<std::size_t>(rank)]->yield();
    }));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSwitches; ++i) fibres[static_cast<std::size_t>(i % ranks)]->resume();
  const double seconds = seconds_since(begin) / kSwitches;
  stop = true;
  for (const auto& fibre : fibres) {
    if (!fibre->ended()) fibre->resume();
  }
  return seconds;
}

double measure_boost(int ranks) {
  std::vector<boost::context::fiber> fibres;
  for (int rank = 0; rank < ranks; ++rank) {
    fibres.emplace_back([](boost::context::fiber&& outside) {
      for (;;) outside = std::move(outside).resume();
      return std::move(outside);
    });
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSwitches; ++i) {
    boost::context::fiber& fibre = fibres[static_cast<std::size_t>(i % ranks)];
    fibre = std::move(fibre).resume();
  }
  return seconds_since(begin) / kSwitches;
}

void run() {
  print_load("before");
  fmt::print("\nFrom one rank to the next and back to the scheduler\n\n{:>8}{:>16}{:>12}{:>12}{:>16}\n", "ranks", "thread token",
             "ucontext", "fibre", "Boost alone");
  for (const int ranks : {2, 100, 1000}) {
    const auto text = [](double seconds) { return fmt::format("{:.0f} ns", seconds * 1e9); };
    fmt::print("{:>8}{:>16}{:>12}{:>12}{:>16}\n", ranks, text(measure_token(ranks)), text(measure_ucontext(ranks)),
               text(measure_fibre(ranks)), text(measure_boost(ranks)));
  }
}

}  // namespace
}  // namespace starling::bench

int main() { starling::bench::run(); }
