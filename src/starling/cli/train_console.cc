// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/train_console.h"

#include <fmt/format.h>

#include <cmath>

namespace starling::cli {
namespace {

constexpr double kSecondsBetweenLines = 10;

}  // namespace

std::string to_text(const run::Progress& progress) {
  const bool whole = progress.epoch == std::floor(progress.epoch);
  std::string text = fmt::format("epoch {:.{}f}/{}  step {}  {:.0f} samples/s", progress.epoch, whole ? 0 : 2, progress.epochs,
                                 progress.step, progress.samples_per_second);
  if (progress.train_loss) text += fmt::format("  loss {:.4f}", *progress.train_loss);
  if (progress.test_accuracy) {
    text += fmt::format("  accuracy {:.2f} %", 100 * *progress.test_accuracy);
  } else if (progress.test_loss) {
    text += fmt::format("  test loss {:.4g}", *progress.test_loss);
  }
  if (progress.skipped > 0) text += fmt::format("  skipped {}", progress.skipped);
  if (progress.seconds_left > 0) text += fmt::format("  left {}", time_text(progress.seconds_left));
  return text;
}

void TrainConsole::progressed(const run::Progress& progress) {
  if (line_.is_terminal()) {
    line_.show(to_text(progress));
  } else if (progress.seconds - last_line_seconds_ >= kSecondsBetweenLines) {
    last_line_seconds_ = progress.seconds;
    line_.print(to_text(progress));
  }
}

void TrainConsole::epoch_ended(const run::Progress& progress) {
  last_line_seconds_ = progress.seconds;
  line_.print(to_text(progress));
}

void TrainConsole::noted(const std::string& message) { line_.print(fmt::format("note: {}", message)); }

}  // namespace starling::cli
