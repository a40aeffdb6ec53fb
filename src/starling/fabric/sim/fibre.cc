// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/fibre.h"

#include <cxxabi.h>

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstring>
#include <string>
#include <utility>

#include "starling/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define STARLING_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STARLING_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define STARLING_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STARLING_TSAN 1
#endif
#endif

#ifdef STARLING_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef STARLING_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace starling::fabric::sim {
namespace {

namespace context = boost::context;

// The exceptions a thread is handling: what the C++ ABI specifies at the start of __cxa_eh_globals.
struct ExceptionState {
  void* caught = nullptr;
  unsigned int uncaught = 0;

  void swap_with_thread() {
    void* thread = abi::__cxa_get_globals();
    ExceptionState copy;
    std::memcpy(&copy, thread, sizeof(copy));
    std::memcpy(thread, this, sizeof(copy));
    *this = copy;
  }
};

}  // namespace

struct Fibre::State {
  context::protected_fixedsize_stack allocator;
  context::stack_context stack;
  std::function<void()> body;
  context::fiber inside;   // Where the body stopped, while outside runs.
  context::fiber outside;  // Where resume() was called, while the body runs.
  ExceptionState exceptions;
  bool ended = false;

#ifdef STARLING_ASAN
  void* fake_stack_inside = nullptr;
  void* fake_stack_outside = nullptr;
  const void* outside_bottom = nullptr;
  std::size_t outside_size = 0;
#endif
#ifdef STARLING_TSAN
  void* tsan_inside = nullptr;
  void* tsan_outside = nullptr;
#endif

  explicit State(std::size_t stack_bytes) : allocator(stack_bytes), stack(allocator.allocate()) {}

  void before_entering() {
#ifdef STARLING_ASAN
    __sanitizer_start_switch_fiber(&fake_stack_outside, static_cast<char*>(stack.sp) - stack.size, stack.size);
#endif
#ifdef STARLING_TSAN
    tsan_outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_inside, 0);
#endif
  }
  void entered() {
#ifdef STARLING_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_inside, &outside_bottom, &outside_size);
#endif
  }
  void before_leaving() {
#ifdef STARLING_ASAN
    // Without a place to keep the fake stack, it is freed: the body will not come back.
    __sanitizer_start_switch_fiber(ended ? nullptr : &fake_stack_inside, outside_bottom, outside_size);
#endif
#ifdef STARLING_TSAN
    __tsan_switch_to_fiber(tsan_outside, 0);
#endif
  }
  void left() {
#ifdef STARLING_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_outside, nullptr, nullptr);
#endif
  }
};

Fibre::Fibre(std::size_t stack_bytes, std::function<void()> body) : state_(std::make_unique<State>(stack_bytes)) {
  State& state = *state_;
  state.body = std::move(body);
#ifdef STARLING_ASAN
  // A fibre ends with its outermost frames still in place, and leaves their red zones behind for whoever gets the memory next.
  __asan_unpoison_memory_region(static_cast<char*>(state.stack.sp) - state.stack.size, state.stack.size);
#endif
#ifdef STARLING_TSAN
  state.tsan_inside = __tsan_create_fiber(0);
#endif
  const context::preallocated memory(state.stack.sp, state.stack.size, state.stack);
  state.inside = context::fiber(std::allocator_arg, memory, state.allocator, [&state](context::fiber&& outside) {
    state.entered();
    state.outside = std::move(outside);
    state.body();
    state.ended = true;
    state.before_leaving();
    return std::move(state.outside);
  });
}

Fibre::~Fibre() {
#ifdef STARLING_TSAN
  __tsan_destroy_fiber(state_->tsan_inside);
#endif
}

void Fibre::resume() {
  STARLING_CHECK(!state_->ended, std::string("resumed a fibre that has ended"));
  state_->exceptions.swap_with_thread();
  state_->before_entering();
  context::fiber inside = std::move(state_->inside).resume();
  state_->left();
  state_->inside = std::move(inside);
  state_->exceptions.swap_with_thread();
}

void Fibre::yield() {
  state_->before_leaving();
  context::fiber outside = std::move(state_->outside).resume();
  state_->entered();
  state_->outside = std::move(outside);
}

bool Fibre::ended() const { return state_->ended; }

}  // namespace starling::fabric::sim
