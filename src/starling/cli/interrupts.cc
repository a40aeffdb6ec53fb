// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/interrupts.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "starling/cli/commands.h"

namespace starling::cli {
namespace {

std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait for a lock");

extern "C" void on_interrupt(int) {
  if (interrupts.fetch_add(1) > 0) ::_exit(kInterrupted);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);  // A reader that has gone is an error of writing, not the end.
}

bool interrupted() { return interrupts.load() > 0; }

}  // namespace starling::cli
