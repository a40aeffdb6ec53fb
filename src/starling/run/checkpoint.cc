// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/base/sha256.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 2;
constexpr std::string_view kPrefix = "step-";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kVectors = "state.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kSums = "SHA256SUMS";
constexpr const char* kWhat = "checkpoint";
constexpr const char* kTemporary = "/.writing";

std::string name_of(std::uint64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (name.empty() || error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

Json to_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::optional<double> optional_number(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<double>(json.get<double>());
}

Json to_json(const data::BatchOrder::Position& position) {
  return {{"epoch", position.epoch}, {"sample", position.sample}, {"step", position.number}};
}

data::BatchOrder::Position position_from(const Json& json) {
  return {.epoch = json.at("epoch"), .sample = json.at("sample"), .number = json.at("step")};
}

Json to_json(const WorkerState& state) {
  return {{"progress", to_json(state.progress)},
          {"order", to_json(state.order)},
          {"samples", state.samples},
          {"skipped", state.skipped},
          {"skipped_in_a_row", state.skipped_in_a_row},
          {"epoch_loss_sum", state.epoch_loss_sum},
          {"epoch_samples", state.epoch_samples}};
}

WorkerState worker_from(const Json& json) {
  return {.progress = position_from(json.at("progress")),
          .order = position_from(json.at("order")),
          .samples = json.at("samples"),
          .skipped = json.at("skipped"),
          .skipped_in_a_row = json.at("skipped_in_a_row"),
          .epoch_loss_sum = json.at("epoch_loss_sum"),
          .epoch_samples = json.at("epoch_samples")};
}

Json to_json(const RunState& state) {
  Json workers = Json::array();
  for (const WorkerState& worker : state.workers) workers.push_back(to_json(worker));
  return {{"position", to_json(state.position)},
          {"steps", state.steps},
          {"steps_before", state.steps_before},
          {"samples", state.samples},
          {"skipped", state.skipped},
          {"seconds", state.seconds},
          {"total_seconds", state.total_seconds},
          {"train_loss", to_json(state.train_loss)},
          {"test_loss", to_json(state.test_loss)},
          {"test_accuracy", to_json(state.test_accuracy)},
          {"best_test_accuracy", to_json(state.best_test_accuracy)},
          {"metrics_bytes", state.metrics_bytes},
          {"stretches", state.stretches},
          {"clock_ns", state.clock.count()},
          {"workers", workers},
          {"numbers", state.numbers},
          {"ledger", state.ledger}};
}

RunState state_from(const Json& json) {
  RunState state;
  state.position = position_from(json.at("position"));
  state.steps = json.at("steps");
  state.steps_before = json.value("steps_before", std::int64_t{0});
  state.samples = json.at("samples");
  state.skipped = json.at("skipped");
  state.seconds = json.at("seconds");
  state.total_seconds = json.at("total_seconds");
  state.train_loss = optional_number(json.at("train_loss"));
  state.test_loss = optional_number(json.at("test_loss"));
  state.test_accuracy = optional_number(json.at("test_accuracy"));
  state.best_test_accuracy = optional_number(json.at("best_test_accuracy"));
  state.metrics_bytes = json.at("metrics_bytes");
  state.stretches = json.at("stretches");
  state.clock = Time(json.at("clock_ns").get<Time::rep>());
  for (const Json& worker : json.at("workers")) state.workers.push_back(worker_from(worker));
  state.numbers = json.at("numbers").get<std::map<std::string, std::uint64_t>>();
  state.ledger = json.at("ledger");
  return state;
}

// The state in a checkpoint's folder. Nothing that is an object where it was damaged or is half removed: that is no use to anybody.
Json state_file(const std::string& folder) {
  std::error_code error;
  const std::string path = fmt::format("{}/{}", folder, kState);
  return fs::exists(path, error) ? Json::parse(read_file(path, kWhat), nullptr, false) : Json();
}

using Vectors = std::vector<CheckpointContents::Vector>;

// Vectors as the tensors of one file.
params::Layout layout_of(const Vectors& vectors) {
  params::Layout layout;
  for (const CheckpointContents::Vector& vector : vectors) layout.add(vector.name, {static_cast<std::int64_t>(vector.values.size())});
  return layout;
}

std::string values_of(const Vectors& vectors) {
  std::string bytes;
  for (const CheckpointContents::Vector& vector : vectors) bytes += bytes_of(vector.values);
  return bytes;
}

// Writes the files of one checkpoint and keeps their sums.
class FolderWriter {
 public:
  FolderWriter(std::string path, const std::function<void()>& progress) : path_(std::move(path)), progress_(progress) {}

  void write(const std::string& name, std::string_view first, std::string_view second = {}) {
    write_file(path_ + "/" + name, {first, second}, kWhat, progress_);
    Sha256 hash;
    hash.add(first);
    for (std::size_t at = 0; at < second.size(); at += kStretch) {
      hash.add(second.substr(at, kStretch));
      if (progress_) progress_();
    }
    sums_ += fmt::format("{}  {}\n", hash.hex_digest(), name);
  }

  void finish() {
    write_file(path_ + "/" + kSums, {sums_}, kWhat);
    sync_folder(path_, kWhat);
  }

 private:
  static constexpr std::size_t kStretch = std::size_t{16} << 20;

  std::string path_;
  const std::function<void()>& progress_;
  std::string sums_;
};

// Reads the files of one checkpoint against their sums.
class FolderReader {
 public:
  explicit FolderReader(std::string path) : path_(std::move(path)) {
    const std::string text = read(kSums);
    for (const char* name : {kWeights, kVectors, kState}) {
      const std::string entry = fmt::format("  {}\n", name);
      const std::size_t found = text.find(entry);
      constexpr std::size_t kDigits = 64;
      if (found == std::string::npos || found < kDigits) fail(kSums, "is truncated or altered: a file has no sum in it");
      sums_[name] = text.substr(found - kDigits, kDigits);
    }
  }

  // `bytes` is how long the file should be, where that is known.
  std::string read_checked(const char* name, std::optional<std::uint64_t> bytes) const {
    std::string contents = read(name);
    if (bytes && contents.size() < *bytes) fail(name, fmt::format("is truncated: it has {} bytes instead of {}", contents.size(), *bytes));
    const std::string sum = sha256_hex(contents);
    if (sum != sums_.at(name)) {
      fail(name, fmt::format("is {}altered: its SHA-256 is {}..., but {} says {}...", bytes ? "" : "truncated or ", sum.substr(0, 12),
                             kSums, sums_.at(name).substr(0, 12)));
    }
    return contents;
  }

  [[noreturn]] void fail(const char* name, const std::string& reason) const {
    throw UserError(fmt::format("the checkpoint '{}' cannot be used: {} {}", path_, name, reason));
  }

 private:
  std::string read(const char* name) const {
    std::error_code error;
    if (!fs::exists(fmt::format("{}/{}", path_, name), error)) fail(name, "is missing");
    return read_file(fmt::format("{}/{}", path_, name), kWhat);
  }

  std::string path_;
  std::map<std::string, std::string> sums_;
};

Checkpoint read_folder(const std::string& folder, const std::string& name) {
  Checkpoint checkpoint;
  checkpoint.name = name;
  checkpoint.path = folder + "/" + name;
  const FolderReader reader(checkpoint.path);
  try {
    const Json json = Json::parse(reader.read_checked(kState, std::nullopt));
    if (json.at("format") != kFormat) {
      reader.fail(kState, fmt::format("has the format {}, but this version of starling knows {} only: begin the run anew, or go on with "
                                      "the version it was begun with",
                                      json.at("format").dump(), kFormat));
    }
    checkpoint.state = state_from(json.at("state"));
    checkpoint.config = json.at("config");
    checkpoint.model = json.at("model");
    checkpoint.data = json.at("data");
    const Json& bytes = json.at("bytes");
    checkpoint.weights = parse_safetensors(reader.read_checked(kWeights, bytes.at(kWeights)), checkpoint.path + "/" + kWeights);
    checkpoint.vectors = parse_safetensors(reader.read_checked(kVectors, bytes.at(kVectors)), checkpoint.path + "/" + kVectors);
  } catch (const Json::exception& error) {
    reader.fail(kState, fmt::format("is not what this version of starling writes ({})", error.what()));
  }
  return checkpoint;
}

bool is_good(const std::string& folder, const std::string& name) {
  try {
    (void)read_folder(folder, name);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

std::string CheckpointStore::write(const CheckpointContents& contents) {
  std::string name = name_of(contents.state.steps);
  try {
    write_folder(contents, name);
    make_latest(name);
  } catch (const UserError& error) {
    std::error_code ignored;
    fs::remove_all(folder_ + kTemporary, ignored);  // On a full disk it would be in the way.
    const std::optional<std::string> last = latest();
    if (!last) throw;
    throw UserError(fmt::format("{} The checkpoint before, {}, is as it was: --resume goes on from it.", error.what(), *last));
  }
  remove_others(contents.state.steps);
  return name;
}

void CheckpointStore::write_folder(const CheckpointContents& contents, const std::string& name) const {
  const std::string temporary = folder_ + kTemporary;
  const std::string step = std::to_string(contents.state.steps);
  const std::string header = safetensors_header(contents.layout, {{"model", contents.model}, {"step", step}});
  const params::Layout vectors_layout = layout_of(contents.vectors);
  const std::string vectors_header = safetensors_header(vectors_layout, {{"step", step}});
  const std::string vectors_values = values_of(contents.vectors);
  const Json state{
      {"format", kFormat},
      {"state", to_json(contents.state)},
      {"model", contents.model},
      {"data", contents.data},
      {"config", contents.config},
      {"interrupted", contents.interrupted},
      {"bytes", {{kWeights, header.size() + contents.weights.size_bytes()}, {kVectors, vectors_header.size() + vectors_values.size()}}}};
  std::error_code error;
  fs::remove_all(temporary, error);
  make_folders(temporary, kWhat);
  FolderWriter writer(temporary, contents.progress);
  writer.write(kWeights, header, bytes_of(contents.weights));
  writer.write(kVectors, vectors_header, vectors_values);
  writer.write(kState, state.dump(2) + "\n");
  writer.finish();
  // One of the same step is not the latest (see make_latest), so it may go.
  fs::remove_all(folder_ + "/" + name, error);
  rename_durably(temporary, folder_ + "/" + name, kWhat);
}

// Keeps this one, the one before, the newest that does not come from an interruption, and the newest at the end of an epoch, from which
// another number of workers can go on. Later ones belong to a course that was given up by going on from an older one.
void CheckpointStore::remove_others(std::uint64_t step) const {
  const std::vector<std::string> all = names();
  const auto here = std::find(all.begin(), all.end(), name_of(step));
  const auto newest = [&](auto is_one) {
    for (auto found = here; found != all.end(); --found) {
      if (is_one(*found)) return found;
      if (found == all.begin()) break;
    }
    return all.end();
  };
  const auto planned = newest([&](const std::string& name) { return is_planned(name); });
  const auto epoch_end = newest([&](const std::string& name) { return is_at_epoch_end(name); });
  for (auto name = all.begin(); name != all.end(); ++name) {
    std::error_code error;
    if (name != here && name + 1 != here && name != planned && name != epoch_end) fs::remove_all(folder_ + "/" + *name, error);
  }
}

bool CheckpointStore::is_planned(const std::string& name) const {
  const Json json = state_file(folder_ + "/" + name);
  return json.is_object() && json.value("interrupted", Json(false)) != Json(true);
}

bool CheckpointStore::is_at_epoch_end(const std::string& name) const {
  const Json json = state_file(folder_ + "/" + name);
  try {
    const RunState state = json.is_object() ? state_from(json.at("state")) : RunState{};
    return !state.workers.empty() && std::all_of(state.workers.begin(), state.workers.end(), [&](const WorkerState& worker) {
      return worker.progress.sample == 0 && worker.progress.epoch == state.workers[0].progress.epoch;
    });
  } catch (const Json::exception&) {
    return false;
  }
}

std::optional<std::string> CheckpointStore::latest_planned() const {
  const std::vector<std::string> all = names();
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const std::string& name) { return is_planned(name); });
  return found == all.rend() ? std::nullopt : std::optional(*found);
}

std::optional<std::string> CheckpointStore::latest_epoch_end() const {
  const std::vector<std::string> all = names();
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const std::string& name) { return is_at_epoch_end(name); });
  return found == all.rend() ? std::nullopt : std::optional(*found);
}

void CheckpointStore::go_back_to(const std::string& name) const {
  make_latest(name);
  const std::vector<std::string> all = names();
  const auto here = std::find(all.begin(), all.end(), name);
  for (auto later = here; later != all.end(); ++later) {
    std::error_code error;
    if (later != here) fs::remove_all(fmt::format("{}/{}", folder_, *later), error);
  }
}

void CheckpointStore::make_latest(const std::string& name) const {
  std::error_code error;
  const std::string path = folder_ + "/latest";
  if (fs::exists(path, error) && read_file(path, kWhat) == name + "\n") return;
  write_file_atomically(path, name + "\n", kWhat);
}

std::optional<std::string> CheckpointStore::latest() const {
  std::error_code error;
  if (!fs::exists(folder_ + "/latest", error)) return std::nullopt;
  std::string name = read_file(folder_ + "/latest", kWhat);
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  if (!step_of(name)) throw UserError(fmt::format("'{}/latest' should name a checkpoint, but says '{}'.{}", folder_, name, advice("")));
  return name;
}

// " step-00000042 is good: give --checkpoint step-00000042 to use it."
std::string CheckpointStore::advice(const std::string& except) const {
  const std::vector<std::string> all = names();
  for (auto name = all.rbegin(); name != all.rend(); ++name) {
    if (*name != except && is_good(folder_, *name)) return fmt::format(" {} is good: give --checkpoint {} to use it.", *name, *name);
  }
  return "";
}

std::vector<std::string> CheckpointStore::names() const {
  std::vector<std::string> result;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (step_of(entry.path().filename().string())) result.push_back(entry.path().filename().string());
  }
  std::sort(result.begin(), result.end(), [](const std::string& a, const std::string& b) { return *step_of(a) < *step_of(b); });
  return result;
}

Checkpoint CheckpointStore::read(const std::string& name) const {
  std::string found = name;
  if (name == "latest") {
    const std::optional<std::string> newest = latest();
    // Without it, a process died just before it named its first one, or the file was lost.
    if (!newest && names().empty()) throw UserError(fmt::format("there is no checkpoint in '{}' yet", folder_));
    found = newest ? *newest : names().back();
  } else if (const auto step = step_of(fmt::format("{}{}", kPrefix, name))) {
    found = name_of(*step);
  }
  const std::vector<std::string> all = names();  // After the latest was read: by now it is there.
  if (std::find(all.begin(), all.end(), found) == all.end()) {
    throw UserError(fmt::format("there is no checkpoint '{}' in '{}'; there are: {}.{}{}", found, folder_, fmt::join(all, ", "),
                                nearest_name_hint(found, all), name == "latest" ? advice(found) : ""));
  }
  try {
    return read_folder(folder_, found);
  } catch (const UserError& error) {
    std::string message = error.what();
    if (message.ends_with('.')) message.pop_back();
    throw UserError(fmt::format("{}.{}", message, advice(found)));
  }
}

}  // namespace starling::run
