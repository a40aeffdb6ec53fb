// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The commands of the program, one source file each. A command adds its flags to the parser, and runs as the parser calls it back.
#pragma once

namespace CLI {
class App;
}

namespace starling::cli {

void add_collective_command(CLI::App& app);
void add_data_command(CLI::App& app);

}  // namespace starling::cli
