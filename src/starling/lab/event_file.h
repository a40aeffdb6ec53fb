// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The course of a run as TensorBoard reads it. A file is a sequence of records (TFRecord), each a length and bytes with their checksums;
// the bytes are messages in the format of protocol buffers, of which TensorBoard's event.proto and summary.proto say what is what. Only
// what scalars need is written here: the version of the file, the beginning of a session, and values with their names.
//
//   EventLog log("runs/a/tensorboard", {});
//   Trainer trainer(config, replicas, dataset, {.observer = &log});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/file.h"
#include "starling/run/trainer.h"

namespace starling::lab {

// A number of protocol buffers: seven bits to a byte, the lowest first, the highest bit saying that more follow.
std::string encode_varint(std::uint64_t value);

struct EventScalar {
  std::string tag{};  // "test/accuracy": TensorBoard groups by what stands before the slash.
  double value = 0;   // Written as a float.
};

// Messages of the type Event. Times are seconds, since 1970 where they are real.
std::string encode_file_version(double wall_time);
// Where earlier files of the folder have one too, TensorBoard drops what they say of this step and later ones.
std::string encode_session_start(double wall_time, std::uint64_t step);
std::string encode_scalars(double wall_time, std::uint64_t step, std::span<const EventScalar> scalars);

// A record of these bytes: length (8 bytes, the lowest first), its checksum, the bytes, their checksum.
std::string framed_record(std::string_view bytes);

// What of a record of the metrics is shown, and under which names: see docs/tensorboard.md.
std::vector<EventScalar> scalars_of(const run::MetricsRecord& record);

struct EventLogOptions {
  std::uint64_t first_step = 0;          // That will be recorded. Where a run goes on, what was done after it before is done again.
  double seconds = 0;                    // Of training before.
  std::function<double()> wall_clock{};  // Without one, events happen at the seconds of training of their records.
};

// Begins a file of its own in the folder, after those that are there. What was recorded is in the file at once. An error of writing must
// not end a run: it is kept, and nothing more is written.
class EventLog final : public run::TrainObserver {
 public:
  // Throws UserError if the file cannot be begun.
  EventLog(const std::string& folder, EventLogOptions options);

  void recorded(const run::MetricsRecord& record) override;

  const std::string& path() const { return path_; }
  // Why writing stopped; empty if it did not.
  const std::string& failure() const { return failure_; }

 private:
  EventLogOptions options_;
  std::string path_;
  std::unique_ptr<AppendFile> file_;
  std::string failure_;
};

}  // namespace starling::lab
