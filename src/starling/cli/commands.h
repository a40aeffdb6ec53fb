// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The commands of the program, one source file each. A command adds its flags to the parser, and runs as the parser calls it back.
#pragma once

namespace CLI {
class App;
}

namespace starling::cli {

// Thrown by a command that has said all there is to say, and ends the program with this code.
struct ExitCode {
  int value = 0;
};
inline constexpr int kDiverged = 3;
inline constexpr int kUnbalanced = 4;     // An update was lost or applied twice: a mistake of the program, or of a strategy.
inline constexpr int kInterrupted = 130;  // As of a program that SIGINT ends.

void add_collective_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_converge_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_landscape_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_strategies_command(CLI::App& app);
void add_train_command(CLI::App& app);

}  // namespace starling::cli
