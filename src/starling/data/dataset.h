// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Data sets by name.
//
//   Dataset data = load_dataset("fashion-mnist", "");
//   Dataset data = load_dataset("fashion-mnist:train=6000,test=1000", "");   // The first so many.
//   Dataset data = load_dataset("quadratic:dimension=20,condition=100,seed=3", "");
//
// docs/data.md lists the names and their options.
#pragma once

#include <string>
#include <vector>

#include "starling/data/samples.h"

namespace starling::data {

struct Dataset {
  std::string name{};  // The whole specification, as given.
  Samples train{};
  Samples test{};                          // Standardised as the training set is.
  std::vector<std::string> class_names{};  // One per class; empty where the answers are numbers.
  std::vector<float> known_answer{};       // Synthetic sets: the weights a model is to find; what they mean is said in docs/data.md.
};

// The names that load_dataset knows, for help and for hints.
std::vector<std::string> dataset_names();

// Reads or makes a data set. Files are looked for in FOLDER/NAME, then in FOLDER itself; where `folder` is "", in the usual places:
// /usr/share/datasets/NAME, then data/NAME. Throws UserError for an unknown name or option, and for files that are missing (saying which
// package or command brings them), truncated, of the wrong kind, or inconsistent.
Dataset load_dataset(const std::string& specification, const std::string& folder);

// What is known about a data set without reading it.
struct DatasetEntry {
  std::string name{};
  std::string summary{};  // A few words: what it holds.
  std::string remedy{};   // How to get its files; "" where there are none, because it is made.
  std::string folder{};   // Where its files are, of the places that load_dataset would look into; "" where they are not.
};
std::vector<DatasetEntry> list_datasets(const std::string& folder);

}  // namespace starling::data
