// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Programs of the benchmarks that are MPI jobs. They are started anew for every round: a job that waits for its turn would keep the cores
// busy.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace starling::bench {

// What a program beside this one prints, line by line, when it is started as so many ranks; nothing if it is not there or fails.
inline std::vector<std::string> run_ranks(int ranks, const std::string& name, const std::string& arguments) {
  std::vector<std::string> lines;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  if (!std::filesystem::exists(program)) return lines;
  const std::string root = geteuid() == 0 ? "--allow-run-as-root " : "";
  // No more ranks than cores: each has its own. Else the system shares the cores out.
  const char* binding = ranks <= static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) ? "--bind-to core" : "--oversubscribe --bind-to none";
  FILE* pipe = popen(fmt::format("mpirun -n {} {} {}{} {}", ranks, binding, root, program.string(), arguments).c_str(), "r");
  if (pipe == nullptr) return lines;
  char line[256];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) lines.emplace_back(line);
  if (pclose(pipe) != 0) {
    fmt::print("mpirun -n {} {} {} failed: its column lacks a round\n", ranks, name, arguments);
    lines.clear();
  }
  return lines;
}

}  // namespace starling::bench
