// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/metrics.h"

#include <nlohmann/json.hpp>

namespace starling::run {

std::string to_json_line(const MetricsRecord& record) {
  nlohmann::ordered_json json{{"kind", record.kind},       {"step", record.step},       {"epoch", record.epoch},
                              {"samples", record.samples}, {"seconds", record.seconds}, {"samples_per_second", record.samples_per_second},
                              {"lr", record.lr},           {"batch", record.batch}};
  const auto put = [&json](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  put("loss", record.loss);
  put("gradient_norm", record.gradient_norm);
  put("weight_norm", record.weight_norm);
  put("train_loss", record.train_loss);
  put("applications", record.applications);
  put("staleness", record.staleness);
  put("skew", record.skew);
  put("bytes_sent", record.bytes_sent);
  put("test_loss", record.test_loss);
  put("test_accuracy", record.test_accuracy);
  return json.dump() + "\n";
}

}  // namespace starling::run
