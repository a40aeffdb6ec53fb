// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/optim/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/portable_math.h"

namespace starling::optim {
namespace {

// cos(π x) for x in [0, 1], from additions, multiplications and divisions alone (see portable_math.h): the series of the sine around the
// middle, where |π (1/2 - x)| ≤ π/2.
double cosine_of_pi(double x) {
  const double angle = std::numbers::pi * (0.5 - x);
  const double square = angle * angle;
  double series = 1;
  for (int k = 12; k >= 1; --k) series = 1 - series * square / (2 * k * (2 * k + 1));
  return angle * series;
}

double power_of(double base, double exponent) {
  if (exponent == 1) return base;
  if (exponent == 0) return 1;
  return base < 1e-300 ? 0 : portable_exp(exponent * portable_log(base));
}

void check(bool valid, const char* option, double value, const std::string& range) {
  if (!valid || !std::isfinite(value)) throw UserError(fmt::format("{} is {}, but it must be {}", option, value, range));
}

void check_milestones(const ScheduleOptions& options) {
  if (options.milestones.empty()) {
    throw UserError("the schedule multi-step needs milestones: the epochs at which the rate drops, such as 30, 60, 80");
  }
  double previous = 0;
  for (const double milestone : options.milestones) {
    check(milestone > previous, "a milestone", milestone,
          previous == 0 ? "positive" : fmt::format("more than the one before, {}", previous));
    previous = milestone;
  }
}

void check_options(const ScheduleOptions& options) {
  const std::vector<std::string> names = schedule_names();
  if (std::find(names.begin(), names.end(), options.kind) == names.end()) {
    throw UserError(fmt::format("there is no schedule '{}'; it is one of {}.{}", options.kind, fmt::join(names, ", "),
                                nearest_name_hint(options.kind, names)));
  }
  const std::string length = fmt::format("between 0 and the length of the run, {} epochs", options.epochs);
  check(options.lr > 0, "lr", options.lr, "positive and finite");
  check(options.epochs > 0, "epochs", options.epochs, "positive");
  check(options.power >= 0, "power", options.power, "0 or positive");
  check(options.gamma > 0, "gamma", options.gamma, "positive");
  check(options.final_lr >= 0 && options.final_lr <= options.lr, "final_lr", options.final_lr,
        fmt::format("between 0 and lr, {}", options.lr));
  check(options.warmup_epochs >= 0 && options.warmup_epochs <= options.epochs, "warmup", options.warmup_epochs, length);
  check(options.warmup_from >= 0 && options.warmup_from <= 1, "warmup_from", options.warmup_from, "a fraction of lr between 0 and 1");
  check(options.batch_warmup_epochs >= 0 && options.batch_warmup_epochs <= options.epochs, "batch_warmup", options.batch_warmup_epochs,
        length);
  check(options.batch >= 1, "batch", static_cast<double>(options.batch), "at least 1");
  check(options.batch_warmup_epochs == 0 || (options.batch_warmup_from >= 1 && options.batch_warmup_from <= options.batch),
        "batch_warmup_from", static_cast<double>(options.batch_warmup_from), fmt::format("between 1 and batch, {}", options.batch));
  if (options.kind == "multi-step") check_milestones(options);
  if (options.two_stage && options.warmup_epochs == 0) {
    throw UserError("two_stage needs a warm-up, which is its first stage: set warmup to the epochs it lasts");
  }
}

}  // namespace

std::vector<std::string> schedule_names() { return {"constant", "polynomial", "multi-step", "cosine"}; }

Schedule::Schedule(ScheduleOptions options) : options_(std::move(options)) { check_options(options_); }

double Schedule::decayed(double epoch) const {
  if (options_.kind == "polynomial") return options_.lr * power_of(1 - epoch / options_.epochs, options_.power);
  if (options_.kind == "multi-step") {
    double rate = options_.lr;
    for (const double milestone : options_.milestones) rate *= epoch >= milestone ? options_.gamma : 1;
    return rate;
  }
  if (options_.kind == "cosine") {
    const double length = options_.epochs - options_.warmup_epochs;
    const double done = length > 0 ? (epoch - options_.warmup_epochs) / length : 0;
    return options_.final_lr + (options_.lr - options_.final_lr) * (1 + cosine_of_pi(done)) / 2;
  }
  return options_.lr;
}

double Schedule::lr(double epoch) const {
  STARLING_CHECK(epoch >= 0, fmt::format("the epoch is {}", epoch));
  if (epoch >= options_.warmup_epochs) return decayed(std::min(epoch, options_.epochs));
  const double start = options_.warmup_from * options_.lr;
  return start + (decayed(options_.warmup_epochs) - start) * (epoch / options_.warmup_epochs);
}

std::size_t Schedule::batch(double epoch) const {
  STARLING_CHECK(epoch >= 0, fmt::format("the epoch is {}", epoch));
  if (epoch >= options_.batch_warmup_epochs) return options_.batch;
  const double from = static_cast<double>(options_.batch_warmup_from);
  const double to = static_cast<double>(options_.batch);
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(from + (to - from) * (epoch / options_.batch_warmup_epochs) + 0.5)));
}

bool Schedule::first_stage(double epoch) const { return options_.two_stage && epoch < options_.warmup_epochs; }

}  // namespace starling::optim
