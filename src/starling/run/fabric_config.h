// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Which fabric to run on and how, as read from a configuration file. The keys are described in docs/simulator.md.
//
//   FabricConfig config = read_fabric_config("cluster.toml");
//   config.sim.ranks = 64;                       // Flags on top of the file.
//   std::unique_ptr<fabric::Fabric> fabric = make_fabric(config);
#pragma once

#include <memory>
#include <string>

#include "starling/fabric/fabric.h"
#include "starling/fabric/mpi/options.h"
#include "starling/fabric/sim/options.h"

namespace starling::run {

struct FabricConfig {
  std::string name = "threads";  // threads, sim or mpi.
  fabric::SimOptions sim{};      // What every fabric needs, and what the simulator alone does.
  fabric::MpiOptions mpi{};      // What the MPI fabric alone needs.
};

// Reads a TOML file. Throws UserError, with file, line and key, for a file that cannot be read or parsed, an unknown key (with the nearest
// valid one), a value of the wrong type or out of range.
FabricConfig read_fabric_config(const std::string& path);

// The same from a text; `origin` stands for the file's name in messages.
FabricConfig parse_fabric_config(const std::string& text, const std::string& origin);

class TomlTable;
class TomlWriter;

// The tables of the fabric in a file that has others beside them; those are left to the caller.
FabricConfig read_fabric_tables(TomlTable& file);

// Writes all keys (those of the simulator only where it is the fabric), so that reading it back gives the same configuration. The trace is
// not part of it.
void write_fabric_tables(const FabricConfig& config, TomlWriter& writer);

// Throws UserError for an unknown name or options out of range.
void validate(const FabricConfig& config);

// A fabric whose ranks live in this process. Throws UserError as validate() does, and for mpi: that one is made by the job this process is
// in (fabric::MpiJob). Delays, and whatever else is not of the simulator alone, count on every fabric.
std::unique_ptr<fabric::Fabric> make_fabric(const FabricConfig& config);

}  // namespace starling::run
