// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What `starling train` prints for people: a summary at the end.
#pragma once

#include <string>

#include "starling/run/run_config.h"
#include "starling/run/trainer.h"

namespace starling::cli {

std::string summary_of(const run::RunConfig& config, const std::string& directory, const run::TrainResult& result);

// "async, 2 workers, 1 server, codec topk:0.01".
std::string roles_text(const run::RunConfig& config);

}  // namespace starling::cli
