// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/train_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "starling/base/time.h"
#include "starling/base/units.h"

namespace starling::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

double rate_of(const run::RunState& state) { return state.seconds > 0 ? static_cast<double>(state.samples) / state.seconds : 0; }

const char* to_string(run::Ending ending) {
  switch (ending) {
    case run::Ending::finished:
      return "finished";
    case run::Ending::diverged:
      return "diverged";
    case run::Ending::interrupted:
      break;
  }
  return "interrupted";
}

Json to_json(const ledger::Histogram& histogram) {
  constexpr double kHalf = 0.5;
  constexpr double kMost = 0.95;
  return {{"mean", histogram.mean()}, {"p50", histogram.quantile(kHalf)}, {"p95", histogram.quantile(kMost)}, {"max", histogram.max()}};
}

void add_books(const ledger::Balance& balance, Json& json) {
  Json dropped = Json::object();
  for (const auto& [reason, count] : balance.dropped) dropped[reason] = count;
  json["updates"] = {{"produced", balance.produced}, {"applied", balance.applied}, {"dropped", dropped}};
  json["staleness"] = {{"version", to_json(balance.version_staleness)}, {"gradient_sets", to_json(balance.set_staleness)}};
  json["bytes_sent"] = balance.bytes_sent;
  json["idle_fraction"] = balance.idle_fraction;
  json["straggler"] = balance.straggler ? Json{{"rank", balance.straggler->rank}, {"times", balance.straggler->times}} : Json();
  json["skew"] = {{"mean", balance.skew.mean()}, {"max", balance.skew.max()}};
  json["workers_time"] = Json::array();
  for (std::size_t rank = 0; rank < balance.time.size(); ++rank) {
    const ledger::TimeUse& time = balance.time[rank];
    json["workers_time"].push_back({{"rank", rank},
                                    {"compute_seconds", to_seconds(time.compute)},
                                    {"waiting_seconds", to_seconds(time.waiting)},
                                    {"communication_seconds", to_seconds(time.communication)},
                                    {"steps", balance.steps[rank]}});
  }
  json["balanced"] = balance.balanced;
}

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

std::string json_of(const run::RunConfig& config, const std::string& directory, const run::TrainResult& result) {
  const strategy::Registry registry = strategy::Registry::built_in();
  const strategy::Roles roles = config.roles(description_of(config, registry));
  Json json{{"strategy", config.strategy_name()},
            {"fabric", config.fabric.name},
            {"workers", roles.workers},
            {"servers", roles.servers},
            {"codec", config.codec},
            {"partition", config.partition},
            {"seed", config.seed()},
            {"model", config.model},
            {"data", config.data},
            {"epochs", result.epochs},
            {"steps", result.state.position.number},
            {"samples", result.state.samples},
            {"skipped_batches", result.state.skipped},
            {"seconds", result.state.seconds},
            {"total_seconds", result.state.total_seconds},
            {"samples_per_second", rate_of(result.state)},
            {"train_loss", number_or_null(result.train_loss)},
            {"test_loss", number_or_null(result.state.test_loss)},
            {"test_accuracy", number_or_null(result.state.test_accuracy)},
            {"best_test_accuracy", number_or_null(result.state.best_test_accuracy)},
            {"weights_sha256", result.weights_sha256}};
  add_books(result.balance, json);
  json["lost_ranks"] = result.lost;
  json["run"] = directory;
  json["checkpoint"] = result.checkpoint;
  json["ending"] = to_string(result.ending);
  json["interrupted"] = result.ending == run::Ending::interrupted;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace starling::cli
