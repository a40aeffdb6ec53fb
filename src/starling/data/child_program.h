// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs another program to its end, without a shell.
#pragma once

#include <string>
#include <vector>

namespace starling::data {

struct ProgramResult {
  int start_error = 0;   // An errno where the program could not be started (ENOENT: there is no such program); 0 where it ran.
  int code = 0;          // Its exit code; 128 + the signal where one ended it.
  std::string errors{};  // What it wrote to standard error; its standard output is dropped.

  bool succeeded() const { return start_error == 0 && code == 0; }
};

// `program` is looked up on PATH unless it has a slash in it. It runs in `folder`, reads nothing, and leaves a file `errors.txt` there.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder);

}  // namespace starling::data
