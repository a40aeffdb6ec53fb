// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C, SIGTERM, a terminal that goes away, and SIGUSR1, which mpirun passes on and batch systems can send some time before the end: the
// first asks long work to end in good order, the second ends the program.
#pragma once

namespace starling::cli {

// From now on. What was ignored when the program was started, as by nohup, stays so.
void catch_interrupts();

// Whether the work is asked to end.
bool interrupted();

}  // namespace starling::cli
