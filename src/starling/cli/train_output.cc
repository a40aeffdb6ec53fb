// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/train_output.h"

#include <fmt/format.h>

#include <optional>

#include "starling/base/units.h"

namespace starling::cli {
namespace {

double rate_of(const run::RunState& state) { return state.seconds > 0 ? static_cast<double>(state.samples) / state.seconds : 0; }

const strategy::Description& description_of(const run::RunConfig& config, const strategy::Registry& registry) {
  return registry.find(config.strategy_name());
}

}  // namespace

std::string roles_text(const run::RunConfig& config) {
  const strategy::Registry registry = strategy::Registry::built_in();
  const strategy::Roles roles = config.roles(description_of(config, registry));
  std::string text = fmt::format("{}, {} {}", config.strategy_name(), roles.workers, roles.workers == 1 ? "worker" : "workers");
  if (roles.servers > 0) text += fmt::format(", {} {}", roles.servers, roles.servers == 1 ? "server" : "servers");
  if (config.codec != "fp32") text += fmt::format(", codec {}", config.codec);
  return text;
}

std::string summary_of(const run::RunConfig& config, const std::string& directory, const run::TrainResult& result) {
  const run::RunState& state = result.state;
  std::string text =
      fmt::format("{:.4g} {}, {} steps, {} samples in {:.2f} s: {:.0f} samples/s\n", result.epochs, result.epochs == 1 ? "epoch" : "epochs",
                  state.position.number, state.samples, state.seconds, rate_of(state));
  if (state.skipped > 0) text += fmt::format("skipped batches  {}\n", state.skipped);
  if (result.train_loss) text += fmt::format("train loss       {:.4f}\n", *result.train_loss);
  if (state.test_loss) text += fmt::format("test loss        {:.4f}\n", *state.test_loss);
  if (state.test_accuracy) text += fmt::format("test accuracy    {:.2f} %\n", 100 * *state.test_accuracy);
  if (config.workers > 1 || config.strategy_name() != "sequential") text += ledger::to_text(result.balance);
  text += fmt::format("weights          sha256 {}\n", result.weights_sha256);
  text += fmt::format("run directory    {}\n", directory);
  if (result.ending == run::Ending::finished && state.test_accuracy)
    text += fmt::format("more             starling evaluate {}\n", directory);
  return text;
}

}  // namespace starling::cli
