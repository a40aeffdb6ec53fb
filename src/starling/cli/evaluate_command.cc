// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/cli/commands.h"
#include "starling/compute/model.h"
#include "starling/data/dataset.h"
#include "starling/lab/classification_report.h"
#include "starling/run/checkpoint.h"
#include "starling/run/run_config.h"
#include "starling/run/run_directory.h"
#include "starling/run/trainer.h"

namespace starling::cli {
namespace {

struct Flags {
  std::string run;
  std::string data;
  std::string data_folder;
  std::string checkpoint = "latest";
  bool json = false;
};

nlohmann::ordered_json to_json(const lab::ClassScore& score) {
  return {{"precision", score.precision}, {"recall", score.recall}, {"f1", score.f1}, {"support", score.support}};
}

void add_report(const lab::ClassificationReport& report, const std::vector<std::string>& names, nlohmann::ordered_json& json) {
  json["test_accuracy"] = report.accuracy;
  json["mean"] = to_json(report.macro);
  json["weighted_mean"] = to_json(report.weighted);
  json["classes"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < report.classes.size(); ++i) {
    nlohmann::ordered_json score = to_json(report.classes[i]);
    score["name"] = i < names.size() ? names[i] : fmt::format("class {}", i);
    json["classes"].push_back(score);
  }
  json["confusion"] = report.confusion;
}

void run_evaluate(const Flags& flags) {
  run::RunConfig config = run::RunDirectory::read_config(flags.run);
  if (!flags.data.empty()) config.data = flags.data;
  if (!flags.data_folder.empty()) config.data_folder = flags.data_folder;
  const run::Checkpoint checkpoint = run::CheckpointStore(flags.run + "/checkpoints").read(flags.checkpoint);
  const data::Dataset dataset = data::load_dataset(config.data, config.data_folder);
  if (dataset.test.count == 0) throw UserError(fmt::format("the data set '{}' has no samples to test with", config.data));
  const std::unique_ptr<compute::Replica> replica =
      compute::make_replica(config.model, compute::Problem::of(dataset.test), config.seed(), 0);
  const std::string difference = params::difference(replica->layout(), checkpoint.weights.layout);
  if (!difference.empty()) {
    throw UserError(fmt::format("the checkpoint '{}' is of another model ({}) than '{}' on '{}': {}", checkpoint.path, checkpoint.model,
                                config.model, config.data, difference));
  }
  std::copy(checkpoint.weights.values.begin(), checkpoint.weights.values.end(), replica->weights().begin());

  const bool labels = dataset.test.has_labels();
  std::vector<std::int32_t> predictions(labels ? dataset.test.count : 0);
  const compute::Evaluation evaluation = run::evaluate(*replica, dataset.test, predictions);
  const double loss = evaluation.loss_sum / static_cast<double>(evaluation.samples);
  nlohmann::ordered_json json{{"run", flags.run},    {"checkpoint", checkpoint.name}, {"model", config.model},
                              {"data", config.data}, {"samples", evaluation.samples}, {"test_loss", loss}};
  fmt::print("{} on {}, {} samples; {} of {}\n\nloss      {:.4f}\n", config.model, config.data, evaluation.samples, checkpoint.name,
             flags.run, loss);
  if (labels) {
    const lab::ClassificationReport report = lab::classification_report(dataset.test.labels, predictions, dataset.test.classes);
    fmt::print("accuracy  {:.2f} %\n\n{}", 100 * report.accuracy, lab::to_text(report, dataset.class_names));
    add_report(report, dataset.class_names, json);
  }
  if (flags.json) fmt::print("{}\n", json.dump());
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("evaluate", "Test a trained model: loss, accuracy, and how well each class is told from the others");
  auto flags = std::make_shared<Flags>();
  command->add_option("run", flags->run, "The run directory")->required();
  command->add_option("--data", flags->data, "Another data set than that of the run, with inputs and classes of the same number");
  command->add_option("--data-folder", flags->data_folder, "Where the files of the data set are looked for first");
  command->add_option("--checkpoint", flags->checkpoint, "A name such as step-00000938, the number of a step, or latest")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print the result as one JSON object, the last line of standard output");
  command->footer("Example: starling evaluate runs/1");
  command->callback([flags] { run_evaluate(*flags); });
}

}  // namespace starling::cli
