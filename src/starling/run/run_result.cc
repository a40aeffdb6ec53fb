// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/run_result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "starling/base/time.h"

namespace starling::run {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

double rate_of(const RunState& state) { return state.seconds > 0 ? static_cast<double>(state.samples) / state.seconds : 0; }

const char* to_string(Ending ending) {
  switch (ending) {
    case Ending::finished:
      return "finished";
    case Ending::diverged:
      return "diverged";
    case Ending::interrupted:
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

std::vector<std::string> names_of(const TrainResult& result) {
  std::vector<std::string> names = result.class_names;
  for (std::size_t i = names.size(); i < result.confusion.size(); ++i) names.push_back(fmt::format("class {}", i));
  return names;
}

}  // namespace

std::string to_json(const RunConfig& config, const std::string& directory, const TrainResult& result) {
  Json json{{"strategy", config.strategy_name()},
            {"fabric", config.fabric.name},
            {"workers", result.roles.workers},
            {"servers", result.roles.servers},
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
  json["reason"] = result.reason;
  json["interrupted"] = result.ending == Ending::interrupted;
  json["histograms"] = {{"version", result.balance.version_staleness.entries()}, {"gradient_sets", result.balance.set_staleness.entries()}};
  json["classes"] = result.confusion.empty() ? Json() : Json{{"names", names_of(result)}, {"confusion", result.confusion}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace starling::run
