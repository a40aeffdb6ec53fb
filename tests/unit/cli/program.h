// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs the program as its users do.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace starling::cli {

struct Ran {
  int code = -1;
  std::string output;  // Standard output and error together.
};

inline Ran run_program_as(const std::string& program, const std::string& variables, const std::string& arguments) {
  Ran ran;
  FILE* pipe = popen((variables + " " + program + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), count);
  ran.code = WEXITSTATUS(pclose(pipe));
  return ran;
}

// With variables of the environment in front of it, as "A=1 B=2".
inline Ran run_as(const std::string& variables, const std::string& arguments) {
  return run_program_as(STARLING_PROGRAM, variables, arguments);
}

inline Ran run(const std::string& arguments) { return run_as("", arguments); }

inline void expect_mistake(const std::string& arguments, const std::string& part) {
  const Ran ran = run(arguments);
  EXPECT_EQ(ran.code, 2) << arguments;
  EXPECT_NE(ran.output.find(part), std::string::npos) << arguments << "\n" << ran.output;
}

}  // namespace starling::cli
