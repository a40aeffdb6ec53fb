// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/event_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "starling/base/crc32c.h"
#include "starling/base/error.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;

// How the value of a field is laid out.
enum class Wire : std::uint64_t { varint = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

// The fields' numbers in event.proto and summary.proto.
constexpr std::uint64_t kEventWallTime = 1;
constexpr std::uint64_t kEventStep = 2;
constexpr std::uint64_t kEventFileVersion = 3;
constexpr std::uint64_t kEventSummary = 5;
constexpr std::uint64_t kEventSessionLog = 7;
constexpr std::uint64_t kSessionLogStatus = 1;
constexpr std::uint64_t kSessionLogStart = 1;
constexpr std::uint64_t kSummaryValue = 1;
constexpr std::uint64_t kValueTag = 1;
constexpr std::uint64_t kValueSimple = 2;

std::string key(std::uint64_t field, Wire wire) { return encode_varint(field << 3 | static_cast<std::uint64_t>(wire)); }

// The lowest byte first, whatever the machine does.
template <class Word>
std::string little_endian(Word word) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Word); ++i) bytes += static_cast<char>(word >> (8 * i) & 0xff);
  return bytes;
}

std::string varint_field(std::uint64_t field, std::uint64_t value) {
  return fmt::format("{}{}", key(field, Wire::varint), encode_varint(value));
}

std::string double_field(std::uint64_t field, double value) {
  return fmt::format("{}{}", key(field, Wire::eight_bytes), little_endian(std::bit_cast<std::uint64_t>(value)));
}

std::string float_field(std::uint64_t field, float value) {
  return fmt::format("{}{}", key(field, Wire::four_bytes), little_endian(std::bit_cast<std::uint32_t>(value)));
}

std::string bytes_field(std::uint64_t field, std::string_view bytes) {
  return fmt::format("{}{}{}", key(field, Wire::bytes), encode_varint(bytes.size()), bytes);
}

// A checksum of bytes that contain checksums says little; so those that are stored are changed in this way.
std::uint32_t masked_crc32c(std::string_view bytes) {
  constexpr std::uint32_t kMask = 0xa282ead8;
  return std::rotr(crc32c(bytes), 15) + kMask;
}

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

// TensorBoard reads the files of a folder in the order of their names. Others put the time there; a number serves as well, and is the same
// in every run.
std::string next_path(const std::string& folder) {
  std::uint64_t last = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kFilePrefix)) continue;
    std::uint64_t number = 0;
    std::from_chars(name.data() + kFilePrefix.size(), name.data() + name.size(), number);
    last = std::max(last, number);
  }
  return fmt::format("{}/{}{:010}.starling", folder, kFilePrefix, last + 1);
}

}  // namespace

std::string encode_varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  bytes += static_cast<char>(value);
  return bytes;
}

std::string encode_file_version(double wall_time) {
  return fmt::format("{}{}", double_field(kEventWallTime, wall_time), bytes_field(kEventFileVersion, "brain.Event:2"));
}

std::string encode_session_start(double wall_time, std::uint64_t step) {
  return fmt::format("{}{}{}", double_field(kEventWallTime, wall_time), varint_field(kEventStep, step),
                     bytes_field(kEventSessionLog, varint_field(kSessionLogStatus, kSessionLogStart)));
}

std::string encode_scalars(double wall_time, std::uint64_t step, std::span<const EventScalar> scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    const std::string value =
        fmt::format("{}{}", bytes_field(kValueTag, scalar.tag), float_field(kValueSimple, static_cast<float>(scalar.value)));
    summary += bytes_field(kSummaryValue, value);
  }
  return fmt::format("{}{}{}", double_field(kEventWallTime, wall_time), varint_field(kEventStep, step),
                     bytes_field(kEventSummary, summary));
}

std::string framed_record(std::string_view bytes) {
  const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
  return fmt::format("{}{}{}{}", length, little_endian(masked_crc32c(length)), bytes, little_endian(masked_crc32c(bytes)));
}

std::vector<EventScalar> scalars_of(const run::MetricsRecord& record) {
  std::vector<EventScalar> scalars;
  const auto put = [&](const char* tag, const auto& value) {
    if (value) scalars.push_back({.tag = tag, .value = static_cast<double>(*value)});
  };
  put("train/loss", record.train_loss);
  put("train/batch_loss", record.loss);
  put("train/gradient_norm", record.gradient_norm);
  put("test/loss", record.test_loss);
  put("test/accuracy", record.test_accuracy);
  put("weights/norm", record.weight_norm);
  put("staleness/mean", record.staleness);
  put("staleness/skew", record.skew);
  put("exchange/applications", record.applications);
  put("exchange/bytes_sent", record.bytes_sent);
  put("throughput/samples_per_second", std::optional(record.samples_per_second));
  put("progress/epoch", std::optional(record.epoch));
  put("progress/samples", std::optional(record.samples));
  put("progress/seconds", std::optional(record.seconds));
  put("schedule/lr", std::optional(record.lr));
  put("schedule/batch", std::optional(record.batch));
  return scalars;
}

EventLog::EventLog(const std::string& folder, EventLogOptions options) : options_(std::move(options)) {
  make_folders(folder, "folder of the log for TensorBoard");
  path_ = next_path(folder);
  file_ = std::make_unique<AppendFile>(path_, 0, "log for TensorBoard");
  const double now = options_.wall_clock ? options_.wall_clock() : options_.seconds;
  file_->append(framed_record(encode_file_version(now)));
  // In the first file as well: TensorBoard takes the first start that it sees in a folder for no restart.
  file_->append(framed_record(encode_session_start(now, options_.first_step)));
}

void EventLog::recorded(const run::MetricsRecord& record) {
  if (!failure_.empty()) return;
  const double now = options_.wall_clock ? options_.wall_clock() : record.seconds;
  try {
    file_->append(framed_record(encode_scalars(now, record.step, scalars_of(record))));
  } catch (const UserError& error) {
    failure_ = error.what();
  }
}

}  // namespace starling::lab
