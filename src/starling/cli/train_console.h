// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What `starling train` shows while it runs, on standard error: on a terminal one line that is refreshed, elsewhere plain lines, one per
// epoch and a few in between.
#pragma once

#include <string>

#include "starling/cli/status_line.h"
#include "starling/run/trainer.h"

namespace starling::cli {

class TrainConsole final : public run::TrainObserver {
 public:
  void progressed(const run::Progress& progress) override;
  void epoch_ended(const run::Progress& progress) override;
  void noted(const std::string& message) override;

  // Removes what is refreshed, so that other output may follow.
  void clear() { line_.clear(); }

 private:
  StatusLine line_;
  double last_line_seconds_ = 0;
};

// "epoch 1.43/3  step 1341  45231 samples/s  loss 0.4312  accuracy 85.20 %  left 3 s"
std::string to_text(const run::Progress& progress);

}  // namespace starling::cli
