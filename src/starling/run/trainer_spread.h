// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a Trainer keeps where the ranks live in several processes, one in each. Only for its own sources.
#pragma once

#include <memory>
#include <optional>

#include "starling/fabric/window.h"
#include "starling/run/signals.h"
#include "starling/run/trainer.h"

namespace starling::run {

struct Trainer::Spread {
  fabric::Rank rank = 0;  // The one that lives here.

  // While its body runs.
  std::optional<Signals> signals{};
  std::shared_ptr<fabric::Window> numbers{};  // With the partition `queue`: how many batches of this stretch were dealt.
  Time looked = Time::zero();                 // For those that are gone.
  Time asked = Time::zero();                  // At rank 0, for reports.

  data::BatchOrder::Position stream{};  // At a meeting: where the stream of batches stands, as far as anybody has told.
  double epochs = 0;                    // Done by all together, as rank 0 has told.
};

}  // namespace starling::run
