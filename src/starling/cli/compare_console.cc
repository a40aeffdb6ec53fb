// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/compare_console.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "starling/lab/comparison_table.h"

namespace starling::cli {
namespace {

constexpr double kSecondsBetweenRefreshs = 0.2;

// Of the whole run, as far as it has come.
double samples_of(const lab::PlannedRun& planned, double epoch) {
  return planned.config.epochs == 0 ? 0 : static_cast<double>(planned.samples) * epoch / static_cast<double>(planned.config.epochs);
}

}  // namespace

std::string to_text(const lab::RunOutcome& outcome) {
  if (outcome.failed()) return fmt::format("failed: {}", outcome.reason);
  if (!outcome.converged) return fmt::format("not converged: {}", outcome.reason);
  if (const auto& accuracy = outcome.values.at("test_accuracy")) return fmt::format("{:.2f} %", 100 * *accuracy);
  if (const auto& loss = outcome.values.at("test_loss")) return fmt::format("test loss {:.4g}", *loss);
  return "finished";
}

void CompareConsole::begin(const std::vector<lab::PlannedRun>& runs) {
  all_ = runs.size();
  for (const lab::PlannedRun& planned : runs) {
    if (planned.ended) {
      ++ended_;
    } else {
      samples_left_ += static_cast<double>(planned.samples);
    }
  }
  clock_ = Stopwatch();
}

void CompareConsole::run_began(const lab::PlannedRun& planned) {
  running_[planned.path] = {.planned = &planned};
  refresh();
}

void CompareConsole::run_progressed(const lab::PlannedRun& planned, const run::Progress& progress) {
  Running& running = running_[planned.path];
  if (running.begun_at < 0) running.begun_at = progress.epoch;
  running.epoch = progress.epoch;
  if (clock_.seconds() - last_refresh_ >= kSecondsBetweenRefreshs) refresh();
}

void CompareConsole::run_ended(const lab::PlannedRun& planned, const lab::RunOutcome& outcome) {
  const double before = std::max(0.0, running_[planned.path].begun_at);
  running_.erase(planned.path);
  ++ended_;
  samples_left_ -= static_cast<double>(planned.samples);
  samples_done_ += static_cast<double>(planned.samples) - samples_of(planned, before);
  line_.print(fmt::format("[{}/{}] {}: {}{}", ended_, all_, lab::printable(planned.name()), to_text(outcome), time_left()));
  refresh();
}

void CompareConsole::run_interrupted(const lab::PlannedRun& planned) {
  running_.erase(planned.path);
  refresh();
}

void CompareConsole::noted(const lab::PlannedRun& planned, const std::string& message) {
  line_.print(fmt::format("note on {}: {}", lab::printable(planned.name()), message));
}

// "; left 3 min 05 s", by the rate so far of all runs together.
std::string CompareConsole::time_left() const {
  double done = samples_done_;
  double left = samples_left_;
  for (const auto& [path, running] : running_) {
    done += samples_of(*running.planned, running.epoch - std::max(0.0, running.begun_at));
    left -= samples_of(*running.planned, running.epoch);
  }
  const double seconds = clock_.seconds();
  if (ended_ == all_ || done <= 0 || seconds <= 0) return "";
  return fmt::format("; left {}", time_text(std::max(0.0, left) * seconds / done));
}

std::string CompareConsole::status() const {
  std::vector<std::string> texts;
  for (const auto& [path, running] : running_) {
    texts.push_back(
        fmt::format("{} (epoch {:.1f}/{})", lab::printable(running.planned->name()), running.epoch, running.planned->config.epochs));
  }
  return fmt::format("{}/{} runs{}; {}", ended_, all_, time_left(), fmt::join(texts, "; "));
}

void CompareConsole::refresh() {
  last_refresh_ = clock_.seconds();
  line_.show(status());
}

}  // namespace starling::cli
