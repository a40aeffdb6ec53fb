// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Several observers of one run.
//
//   TrainObservers observers{&console, &event_log};
//   Trainer trainer(config, replicas, dataset, {.observer = &observers});
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "starling/run/trainer.h"

namespace starling::run {

// Passes all on to each, in the order in which they were given.
class TrainObservers final : public TrainObserver {
 public:
  TrainObservers() = default;
  TrainObservers(std::initializer_list<TrainObserver*> observers) : observers_(observers) {}

  // While no run is under way. The observer outlives this.
  void add(TrainObserver& observer) { observers_.push_back(&observer); }

  void progressed(const Progress& progress) override {
    for (TrainObserver* observer : observers_) observer->progressed(progress);
  }
  void epoch_ended(const Progress& progress) override {
    for (TrainObserver* observer : observers_) observer->epoch_ended(progress);
  }
  void recorded(const MetricsRecord& record) override {
    for (TrainObserver* observer : observers_) observer->recorded(record);
  }
  void checkpoint_written(const std::string& path) override {
    for (TrainObserver* observer : observers_) observer->checkpoint_written(path);
  }
  void noted(const std::string& message) override {
    for (TrainObserver* observer : observers_) observer->noted(message);
  }

 private:
  std::vector<TrainObserver*> observers_;
};

}  // namespace starling::run
