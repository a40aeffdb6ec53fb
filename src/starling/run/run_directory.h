// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The folder of one run: config.toml, metrics.jsonl, checkpoints/, and when it has ended result.json. A run is never overwritten, and one
// process at a time works in it.
//
//   RunDirectory directory = RunDirectory::create("runs/a", config);
//   RunDirectory directory = RunDirectory::open("runs/a");
#pragma once

#include <memory>
#include <string>

#include "starling/base/file.h"
#include "starling/run/run_config.h"

namespace starling::run {

class RunDirectory {
 public:
  // Throws UserError if there is a run in the folder already; touches nothing.
  static void require_free(const std::string& path);

  // Makes the folder, "" meaning the next free number in runs/, and writes the configuration. Throws UserError if there is a run in it, or
  // it cannot be written.
  static RunDirectory create(const std::string& path, const RunConfig& config);

  // An existing run, to go on with it. Throws UserError if there is none, or another process is at work on it.
  static RunDirectory open(const std::string& path);

  // Only to look at, beside whoever works in it.
  static RunConfig read_config(const std::string& path);

  // Replaces the configuration, as when the run is to be longer.
  void write_config(const RunConfig& config) const;

  // How the run ended, as JSON. Removed when it goes on.
  void write_result(const std::string& json) const;
  void remove_result() const;

  const std::string& path() const { return path_; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoints_path() const { return checkpoints_in(path_); }
  // Where a run directory has its checkpoints, for those who only look.
  static std::string checkpoints_in(const std::string& path) { return path + "/checkpoints"; }
  std::string result_path() const { return path_ + "/result.json"; }

 private:
  explicit RunDirectory(std::string path);

  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace starling::run
