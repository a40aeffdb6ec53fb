// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/train_console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace starling::cli {
namespace {

constexpr double kSecondsBetweenLines = 10;
constexpr const char* kClearLine = "\r\033[K";

std::string time_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(seconds));
  constexpr long long kMinute = 60;
  constexpr long long kHour = 3600;
  if (whole < kMinute) return fmt::format("{} s", whole);
  if (whole < kHour) return fmt::format("{} min {:02} s", whole / kMinute, whole % kMinute);
  return fmt::format("{} h {:02} min", whole / kHour, whole % kHour / kMinute);
}

// What people may see or not must not end a run: errors of the terminal are ignored.
void put(const std::string& text) {
  static_cast<void>(std::fputs(text.c_str(), stderr));
  static_cast<void>(std::fflush(stderr));
}

// Cut to what fits on one row, because only one row can be cleared again.
std::string fitted(std::string text) {
  winsize size{};
  constexpr std::size_t kUsual = 80;
  const std::size_t columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
  if (text.size() >= columns) text.resize(columns - 1);
  return text;
}

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

TrainConsole::TrainConsole() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void TrainConsole::progressed(const run::Progress& progress) {
  if (terminal_) {
    put(kClearLine + fitted(to_text(progress)));
  } else if (progress.seconds - last_line_seconds_ >= kSecondsBetweenLines) {
    last_line_seconds_ = progress.seconds;
    put(to_text(progress) + "\n");
  }
}

void TrainConsole::epoch_ended(const run::Progress& progress) {
  clear();
  last_line_seconds_ = progress.seconds;
  put(to_text(progress) + "\n");
}

void TrainConsole::noted(const std::string& message) {
  clear();
  put(fmt::format("note: {}\n", message));
}

void TrainConsole::clear() {
  if (!terminal_) return;
  put(kClearLine);
}

}  // namespace starling::cli
