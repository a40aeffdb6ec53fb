// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/snapshots.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/run/safetensors.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";

std::string folder_of(const std::string& run_path) { return run_path + "/snapshots"; }

template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The step of a file of ours; nothing for any other, such as one that was being written when the process ended.
std::optional<std::uint64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  return parse<std::uint64_t>(std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
}

std::vector<std::pair<std::uint64_t, std::string>> list(const std::string& folder) {
  std::vector<std::pair<std::uint64_t, std::string>> result;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) result.emplace_back(*step, entry->path().string());
  }
  std::sort(result.begin(), result.end());
  return result;
}

Snapshot read_snapshot(const std::string& path) {
  Safetensors file = parse_safetensors(read_file(path, "snapshot"), path);
  const auto number = [&]<class Number>(const char* key, Number& target) {
    const auto found = file.metadata.find(key);
    const std::optional<Number> value = found == file.metadata.end() ? std::nullopt : parse<Number>(found->second);
    if (!value) throw UserError(fmt::format("the snapshot '{}' does not say its {}; remove it", path, key));
    target = *value;
  };
  Snapshot snapshot;
  number("step", snapshot.step);
  number("epoch", snapshot.epoch);
  number("samples", snapshot.samples);
  snapshot.weights = std::move(file.values);
  return snapshot;
}

}  // namespace

std::uint64_t snapshots_due(double epoch, std::uint64_t per_epoch) {
  constexpr double kRounding = 1e-9;  // A third of an epoch three times is one.
  return static_cast<std::uint64_t>(std::floor(epoch * static_cast<double>(per_epoch) + kRounding));
}

SnapshotStore::SnapshotStore(const std::string& run_path) : folder_(folder_of(run_path)) { make_folders(folder_, "folder of snapshots"); }

void SnapshotStore::write(const Snapshot& snapshot, const params::Layout& layout) const {
  const std::string header = safetensors_header(layout, {{"step", std::to_string(snapshot.step)},
                                                         {"epoch", fmt::format("{}", snapshot.epoch)},
                                                         {"samples", std::to_string(snapshot.samples)}});
  const std::string path = fmt::format("{}/{}{:08}{}", folder_, kPrefix, snapshot.step, kSuffix);
  write_file_atomically(path, fmt::format("{}{}", header, bytes_of(snapshot.weights)), "snapshot of the weights");
}

void SnapshotStore::drop_after(std::uint64_t step) const {
  for (const auto& [number, path] : list(folder_)) {
    std::error_code error;
    if (number > step) fs::remove(path, error);
  }
}

std::vector<Snapshot> read_snapshots(const std::string& run_path) {
  std::vector<Snapshot> result;
  for (const auto& [step, path] : list(folder_of(run_path))) result.push_back(read_snapshot(path));
  if (result.empty()) {
    throw UserError(fmt::format("the run '{}' has no snapshots of its weights; they are kept by starling train --snapshots 3", run_path));
  }
  return result;
}

}  // namespace starling::run
