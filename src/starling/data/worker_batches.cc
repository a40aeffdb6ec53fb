// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/worker_batches.h"

#include <algorithm>

namespace starling::data {
namespace {

std::size_t mean_size(const std::vector<std::vector<std::uint32_t>>& parts) {
  std::size_t sum = 0;
  for (const std::vector<std::uint32_t>& part : parts) sum += part.size();
  return std::max<std::size_t>(1, (sum + parts.size() - 1) / parts.size());
}

}  // namespace

WorkerBatches::WorkerBatches(const std::vector<std::vector<std::uint32_t>>& parts, const std::string& partition, int worker,
                             std::uint64_t seed)
    : shared_(partition == "shared"),
      queue_(partition == "queue"),
      worker_(worker),
      workers_(static_cast<int>(parts.size())),
      order_(queue_ ? std::vector<std::uint32_t>{0} : parts[static_cast<std::size_t>(worker)], seed,
             shared_ ? 0U : static_cast<std::uint32_t>(worker)),
      nominal_(shared_ ? order_.samples_per_epoch() : mean_size(parts)) {}

WorkerBatches::Draw WorkerBatches::next(std::size_t size, bool takes_part) {
  if (shared_) {
    const std::span<const std::uint32_t> all = order_.next(size * static_cast<std::size_t>(workers_));
    // As evenly as possible, the longer shares first.
    const auto workers = static_cast<std::size_t>(workers_);
    const auto worker = static_cast<std::size_t>(worker_);
    const std::size_t least = all.size() / workers;
    const std::size_t longer = all.size() % workers;
    const std::size_t begin = worker * least + std::min(worker, longer);
    const std::size_t count = least + (worker < longer ? 1 : 0);
    const double share = longer == 0 ? 1 : static_cast<double>(count * workers) / static_cast<double>(all.size());
    return {.indices = takes_part ? all.subspan(begin, count) : all.first(0), .share = share};
  }
  const std::size_t count = std::min<std::size_t>(size, nominal_ - progress_.sample);
  progress_.sample += count;
  ++progress_.number;
  if (progress_.sample == nominal_) {
    progress_.sample = 0;
    ++progress_.epoch;
  }
  return {.indices = takes_part ? order_.next(count) : std::span<const std::uint32_t>()};
}

void WorkerBatches::took(const BatchOrder::Position& after) {
  progress_.epoch = after.epoch;
  progress_.sample = after.sample;
  ++progress_.number;
}

void WorkerBatches::align(const BatchOrder::Position& stream) {
  progress_.epoch = stream.epoch;
  progress_.sample = stream.sample;
  stream_ = stream;
}

double WorkerBatches::epoch() const {
  return static_cast<double>(progress().epoch) + static_cast<double>(progress().sample) / static_cast<double>(nominal_);
}

std::size_t WorkerBatches::samples_per_epoch() const {
  return shared_ || queue_ ? std::max<std::size_t>(1, nominal_ / static_cast<std::size_t>(workers_)) : nominal_;
}

void WorkerBatches::seek(const BatchOrder::Position& progress, const BatchOrder::Position& order) {
  progress_ = progress;
  stream_ = order;
  if (!queue_) order_.seek(shared_ ? progress : order);
}

}  // namespace starling::data
