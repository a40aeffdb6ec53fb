// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/run_directory.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "starling/base/error.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;

std::string config_path(const std::string& path) { return path + "/config.toml"; }

bool has_run(const std::string& path) {
  std::error_code error;
  return fs::exists(config_path(path), error);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Making the folder is what takes the number, so that runs started at the same time get different ones.
std::string make_next_number() {
  make_folders("runs", "folder of all runs");
  for (int number = 1;; ++number) {
    std::string path = fmt::format("runs/{}", number);
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error)
      throw UserError(fmt::format("cannot make the run directory '{}': {}. Choose another one with --out.", path, error.message()));
  }
}

void require_run(const std::string& path) {
  if (has_run(path)) return;
  throw UserError(fmt::format("there is no run in '{}': it has no config.toml. A run is made by starling train --out {}", path, path));
}

}  // namespace

RunDirectory::RunDirectory(std::string path) : path_(std::move(path)) {
  lock_ = std::make_unique<FileLock>(
      path_ + "/lock", fmt::format("another process is at work on the run '{}'; wait for it, or stop it", path_), "lock of the run");
}

void RunDirectory::require_free(const std::string& path) {
  if (path.empty() || !has_run(path)) return;
  throw UserError(fmt::format("there is a run in '{}' already; go on with it by --resume {}, or give another --out", path, path));
}

RunDirectory RunDirectory::create(const std::string& path, const RunConfig& config) {
  require_free(path);
  std::string folder = path.empty() ? make_next_number() : without_slashes(path);
  make_folders(folder, "run directory");
  RunDirectory directory(std::move(folder));
  require_free(directory.path_);  // Another process may have been quicker.
  make_folders(directory.checkpoints_path(), "folder of checkpoints");
  directory.write_config(config);
  return directory;
}

RunDirectory RunDirectory::open(const std::string& path) {
  const std::string folder = without_slashes(path);
  require_run(folder);
  RunDirectory directory(folder);
  make_folders(directory.checkpoints_path(), "folder of checkpoints");
  return directory;
}

RunConfig RunDirectory::read_config(const std::string& path) {
  const std::string folder = without_slashes(path);
  require_run(folder);
  return read_run_config(config_path(folder));
}

void RunDirectory::write_config(const RunConfig& config) const {
  write_file_atomically(config_path(path_), to_toml(config), "configuration of the run");
}

void RunDirectory::write_result(const std::string& json) const {
  write_file_atomically(result_path(), fmt::format("{}\n", json), "result of the run");
}

void RunDirectory::remove_result() const {
  std::error_code error;
  fs::remove(result_path(), error);
}

}  // namespace starling::run
