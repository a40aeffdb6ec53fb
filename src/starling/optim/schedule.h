// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Learning rate and batch size over the run, as functions of progress alone: nothing to save in a checkpoint.
//
//   Schedule schedule({.lr = 0.1, .kind = "cosine", .warmup_epochs = 5, .epochs = 90});
//   double lr = schedule.lr(epoch);              // epoch is a fraction: 2.5 is the middle of the third.
//
// The decay is a function of the whole run, the warm-up included:
//   constant     lr
//   polynomial   lr (1 - t/T)^power, 0 at the end
//   multi-step   lr gamma^(milestones reached)
//   cosine       from lr at the end of the warm-up along half a cosine down to final_lr at T
// The warm-up rises linearly to what the decay has at its end (lr, except for polynomial and for milestones inside the warm-up), so that
// the rate does not jump there. Equal options and progress give equal bits on every machine. Immutable, so safe to share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace starling::optim {

struct ScheduleOptions {
  std::string kind = "constant";     // constant, polynomial, multi-step, cosine.
  double lr = 0.01;                  // After the warm-up, before any decay.
  double epochs = 1;                 // T: the length of the run.
  double power = 1;                  // polynomial: lr (1 - t/T)^power.
  std::vector<double> milestones{};  // multi-step: epochs at which the rate is multiplied by gamma.
  double gamma = 0.1;                // multi-step.
  double final_lr = 0;               // cosine: the rate at the end.
  double warmup_epochs = 0;          // The rate rises linearly from warmup_from × lr over these epochs.
  double warmup_from = 0;            // Fraction of lr at the start of the warm-up.
  std::size_t batch = 64;            // After the warm-up.
  double batch_warmup_epochs = 0;    // The batch rises linearly from batch_warmup_from to batch.
  std::size_t batch_warmup_from = 1;
  bool two_stage = false;  // SGD during the warm-up of the rate, then the run's optimiser, whose state starts there.

  bool operator==(const ScheduleOptions&) const = default;
};

class Schedule {
 public:
  // Throws UserError for an unknown kind or options out of range.
  explicit Schedule(ScheduleOptions options);

  // At a point of the run; beyond its end as at its end. Precondition (checked): epoch is not negative.
  double lr(double epoch) const;
  std::size_t batch(double epoch) const;  // Rounded to the nearest, at least 1.

  // two-stage: still in the first stage? For TwoStage::set_first_stage.
  bool first_stage(double epoch) const;

  const ScheduleOptions& options() const { return options_; }

 private:
  double decayed(double epoch) const;

  ScheduleOptions options_;
};

std::vector<std::string> schedule_names();

}  // namespace starling::optim
