// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How a run ended, as one JSON object: what 'starling train --json' prints, and result.json in the run directory. docs/training.md says
// what the fields mean.
#pragma once

#include <string>

#include "starling/run/run_config.h"
#include "starling/run/trainer.h"

namespace starling::run {

// On one line, without its end. `directory` is where the run is.
std::string to_json(const RunConfig& config, const std::string& directory, const TrainResult& result);

}  // namespace starling::run
