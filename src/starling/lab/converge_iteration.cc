// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_iteration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

// Beyond this an iteration is taken to diverge; squares of it are still finite.
constexpr double kOverflow = 1e150;
constexpr std::uint64_t kTraceLength = 400;

// The values a block has had, as far back as somebody may still read.
class History {
 public:
  explicit History(std::vector<double> first) { versions_.push_back({0, std::move(first)}); }

  const std::vector<double>& at(std::uint64_t time) const {
    const auto after = std::upper_bound(versions_.begin(), versions_.end(), time,
                                        [](std::uint64_t t, const Version& version) { return t < version.step; });
    STARLING_CHECK(after != versions_.begin(), fmt::format("the value of step {} is still there", time));
    return std::prev(after)->value;
  }
  const std::vector<double>& newest() const { return versions_.back().value; }
  void add(std::uint64_t step, std::vector<double> value) { versions_.push_back({step, std::move(value)}); }

  // Drops what no reader of this time or later can see.
  void forget_before(std::uint64_t time) {
    while (versions_.size() > 1 && versions_[1].step <= time) versions_.pop_front();
  }

 private:
  struct Version {
    std::uint64_t step = 0;
    std::vector<double> value{};
  };
  std::deque<Version> versions_;
};

// What is kept of a block, how the whole is put together from it, and how far off it is.
class View {
 public:
  virtual ~View() = default;
  virtual std::vector<double> keep(std::size_t block, const std::vector<double>& whole) const = 0;
  virtual std::vector<double> combine(const std::vector<const std::vector<double>*>& values) const = 0;
  virtual double error(std::size_t block, const std::vector<double>& kept) const = 0;
};

class NormOfError {
 public:
  explicit NormOfError(const IterationSetup& setup) : setup_(setup) {}

  void add(std::size_t component, double value) {
    const double difference = std::abs(value - setup_.problem->optimum()[component]);
    if (setup_.norm == Norm::l2) {
      sum_ += difference * difference;
    } else {
      const double scaled = setup_.norm == Norm::weighted ? difference / setup_.weights[component] : difference;
      // Written so that a value that is no number is kept.
      if (!(scaled <= sum_)) sum_ = scaled;
    }
  }
  double value() const { return setup_.norm == Norm::l2 ? std::sqrt(sum_) : sum_; }

 private:
  const IterationSetup& setup_;
  double sum_ = 0;
};

// A block keeps its own components.
class DisjointView : public View {
 public:
  explicit DisjointView(const IterationSetup& setup) : setup_(setup) {}

  std::vector<double> keep(std::size_t block, const std::vector<double>& whole) const override {
    const BlockRange range = block_range(whole.size(), setup_.blocks, block);
    return {whole.begin() + static_cast<std::ptrdiff_t>(range.begin), whole.begin() + static_cast<std::ptrdiff_t>(range.end)};
  }
  std::vector<double> combine(const std::vector<const std::vector<double>*>& values) const override {
    std::vector<double> whole;
    whole.reserve(setup_.problem->dimension());
    for (const std::vector<double>* value : values) whole.insert(whole.end(), value->begin(), value->end());
    return whole;
  }
  double error(std::size_t block, const std::vector<double>& kept) const override {
    const BlockRange range = block_range(setup_.problem->dimension(), setup_.blocks, block);
    NormOfError norm(setup_);
    for (std::size_t i = range.begin; i < range.end; ++i) norm.add(i, kept[i - range.begin]);
    return norm.value();
  }

 private:
  const IterationSetup& setup_;
};

// All count the same: the whole is their mean.
class UniformView : public View {
 public:
  explicit UniformView(const IterationSetup& setup) : setup_(setup) {}

  std::vector<double> keep(std::size_t, const std::vector<double>& whole) const override { return whole; }
  std::vector<double> combine(const std::vector<const std::vector<double>*>& values) const override {
    std::vector<double> whole(setup_.problem->dimension(), 0.0);
    for (const std::vector<double>* value : values) {
      for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += (*value)[i];
    }
    for (double& value : whole) value /= static_cast<double>(values.size());
    return whole;
  }
  double error(std::size_t, const std::vector<double>& kept) const override {
    NormOfError norm(setup_);
    for (std::size_t i = 0; i < kept.size(); ++i) norm.add(i, kept[i]);
    return norm.value();
  }

 private:
  const IterationSetup& setup_;
};

class MaskedView : public View {
 public:
  MaskedView(const IterationSetup& setup, const std::vector<std::vector<double>>& masks) : setup_(setup), masks_(masks) {}

  std::vector<double> keep(std::size_t, const std::vector<double>& whole) const override { return whole; }
  std::vector<double> combine(const std::vector<const std::vector<double>*>& values) const override {
    std::vector<double> whole(setup_.problem->dimension(), 0.0);
    for (std::size_t block = 0; block < values.size(); ++block) {
      for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += masks_[block][i] * (*values[block])[i];
    }
    return whole;
  }
  double error(std::size_t block, const std::vector<double>& kept) const override {
    NormOfError norm(setup_);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (masks_[block][i] > 0) norm.add(i, kept[i]);
    }
    return norm.value();
  }

 private:
  const IterationSetup& setup_;
  const std::vector<std::vector<double>>& masks_;
};

void take_local_steps(const IterationSetup& setup, std::size_t block, std::vector<double>& x) {
  BlockRange range{0, x.size()};
  if (setup.steps_on == StepsOn::block) range = block_range(x.size(), setup.blocks, block);
  std::vector<double> slope(range.end - range.begin);
  for (int step = 0; step < setup.local_steps[block]; ++step) {
    setup.problem->gradient(x, range.begin, range.end, slope);
    for (std::size_t i = range.begin; i < range.end; ++i) x[i] -= setup.step_size * slope[i - range.begin];
  }
}

void check_setup(const IterationSetup& setup) {
  STARLING_CHECK(setup.problem != nullptr && setup.blocks > 0, std::string("an iteration has a problem and blocks"));
  const std::size_t dimension = setup.problem->dimension();
  STARLING_CHECK(setup.start.size() == dimension, std::string("the start has the problem's dimension"));
  STARLING_CHECK(setup.local_steps.size() == setup.blocks, std::string("there is a number of local steps per block"));
  STARLING_CHECK(setup.masks == Masks::uniform || setup.blocks <= dimension, std::string("no block is empty"));
  STARLING_CHECK(setup.steps_on == StepsOn::all || setup.masks == Masks::disjoint,
                 std::string("steps on a block's own components need disjoint masks"));
  STARLING_CHECK(setup.norm != Norm::weighted || setup.weights.size() == dimension, std::string("there is a weight per component"));
}

class Runner {
 public:
  Runner(const IterationSetup& setup, const View& view, Schedule& schedule, std::uint64_t iterations)
      : setup_(setup), view_(view), schedule_(schedule), iterations_(iterations), block_errors_(setup.blocks) {
    for (std::size_t block = 0; block < setup.blocks; ++block) {
      histories_.emplace_back(view.keep(block, setup.start));
      block_errors_[block] = view.error(block, histories_[block].newest());
    }
  }

  IterationRecord run() {
    record_.trace_stride = std::max<std::uint64_t>((iterations_ + kTraceLength - 1) / kTraceLength, 1);
    record_.traces.resize(setup_.blocks);
    record_.first_block_errors = block_errors_;
    note_errors(0);
    for (std::uint64_t step = 1; step <= iterations_ && !record_.overflow_step; ++step) {
      take_step(step);
      note_errors(step);
    }
    record_.last_block_errors = block_errors_;
    std::vector<const std::vector<double>*> newest;
    for (const History& history : histories_) newest.push_back(&history.newest());
    record_.last_state = view_.combine(newest);
    return std::move(record_);
  }

 private:
  void take_step(std::uint64_t step) {
    const std::uint64_t oldest_needed = schedule_.oldest_label(step);
    for (History& history : histories_) history.forget_before(oldest_needed);
    const std::vector<BlockUpdate> updates = schedule_.updates(step);
    std::vector<std::vector<double>> computed;
    for (const BlockUpdate& update : updates) {
      std::vector<const std::vector<double>*> read;
      for (std::size_t block = 0; block < setup_.blocks; ++block) {
        STARLING_CHECK(update.labels[block] < step, std::string("an update reads what was there before its step"));
        read.push_back(&histories_[block].at(update.labels[block]));
      }
      std::vector<double> x = view_.combine(read);
      take_local_steps(setup_, update.block, x);
      computed.push_back(view_.keep(update.block, x));
      const std::uint64_t oldest = *std::min_element(update.labels.begin(), update.labels.end());
      record_.updates.push_back(
          {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(update.block), static_cast<std::uint32_t>(oldest)});
    }
    for (std::size_t i = 0; i < updates.size(); ++i) {
      const std::size_t block = updates[i].block;
      block_errors_[block] = view_.error(block, computed[i]);
      histories_[block].add(step, std::move(computed[i]));
    }
  }

  void note_errors(std::uint64_t step) {
    double largest = 0;
    for (const double error : block_errors_) {
      if (!(error <= largest)) largest = error;
      if (!(error <= kOverflow)) record_.overflow_step = step;
    }
    record_.errors.push_back(largest);
    if (step % record_.trace_stride != 0) return;
    for (std::size_t block = 0; block < setup_.blocks; ++block) record_.traces[block].push_back(block_errors_[block]);
  }

  const IterationSetup& setup_;
  const View& view_;
  Schedule& schedule_;
  std::uint64_t iterations_;
  std::vector<History> histories_;
  std::vector<double> block_errors_;
  IterationRecord record_;
};

IterationRecord run_view(const IterationSetup& setup, const View& view, Schedule& schedule, std::uint64_t iterations) {
  STARLING_CHECK(iterations <= std::numeric_limits<std::uint32_t>::max(), std::string("steps are numbered with 32 bits"));
  return Runner(setup, view, schedule, iterations).run();
}

}  // namespace

BlockRange block_range(std::size_t dimension, std::size_t blocks, std::size_t block) {
  return {dimension * block / blocks, dimension * (block + 1) / blocks};
}

std::vector<std::vector<double>> make_masks(Masks masks, std::size_t dimension, std::size_t blocks) {
  const double share = masks == Masks::uniform ? 1 / static_cast<double>(blocks) : 0;
  std::vector<std::vector<double>> result(blocks, std::vector<double>(dimension, share));
  for (std::size_t block = 0; block < blocks && masks == Masks::disjoint; ++block) {
    const BlockRange range = block_range(dimension, blocks, block);
    for (std::size_t i = range.begin; i < range.end; ++i) result[block][i] = 1;
  }
  return result;
}

void check_masks(const std::vector<std::vector<double>>& masks, std::size_t dimension) {
  for (std::size_t i = 0; i < dimension; ++i) {
    double sum = 0;
    for (const std::vector<double>& mask : masks) {
      STARLING_CHECK(mask.size() == dimension && mask[i] >= 0, fmt::format("a mask has {} components, none negative", dimension));
      sum += mask[i];
    }
    STARLING_CHECK(std::abs(sum - 1) < 1e-12, fmt::format("the masks sum to {} at component {}, not to 1", sum, i));
  }
}

IterationRecord run_iteration(const IterationSetup& setup, Schedule& schedule, std::uint64_t iterations) {
  check_setup(setup);
  if (setup.masks == Masks::disjoint) return run_view(setup, DisjointView(setup), schedule, iterations);
  return run_view(setup, UniformView(setup), schedule, iterations);
}

IterationRecord run_masked_iteration(const IterationSetup& setup, const std::vector<std::vector<double>>& masks, Schedule& schedule,
                                     std::uint64_t iterations) {
  check_setup(setup);
  STARLING_CHECK(masks.size() == setup.blocks, std::string("there is a mask per block"));
  check_masks(masks, setup.problem->dimension());
  return run_view(setup, MaskedView(setup, masks), schedule, iterations);
}

std::vector<std::uint64_t> macro_iterations(const std::vector<UpdateRecord>& updates, std::size_t blocks) {
  // Per block its updates, each with the oldest label of it and of all that follow.
  struct Update {
    std::uint64_t step = 0;
    std::uint64_t oldest_from_here = 0;
  };
  std::vector<std::vector<Update>> of_block(blocks);
  for (const UpdateRecord& update : updates) of_block[update.block].push_back({update.step, update.oldest});
  for (std::vector<Update>& list : of_block) {
    for (std::size_t i = list.size(); i-- > 1;)
      list[i - 1].oldest_from_here = std::min(list[i - 1].oldest_from_here, list[i].oldest_from_here);
  }
  std::vector<std::uint64_t> times{0};
  std::vector<std::size_t> positions(blocks, 0);
  while (true) {
    std::uint64_t end = 0;
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::vector<Update>& list = of_block[block];
      std::size_t& position = positions[block];
      while (position < list.size() && list[position].oldest_from_here < times.back()) ++position;
      if (position == list.size()) return times;
      end = std::max(end, list[position].step);
    }
    times.push_back(end);
  }
}

std::vector<double> errors_from(const std::vector<double>& errors, const std::vector<std::uint64_t>& times) {
  std::vector<double> result(times.size());
  double largest = 0;
  std::size_t step = errors.size();
  for (std::size_t m = times.size(); m-- > 0;) {
    while (step > times[m]) largest = std::max(largest, errors[--step]);
    result[m] = largest;
  }
  return result;
}

std::vector<double> errors_within(const std::vector<double>& errors, const std::vector<std::uint64_t>& times) {
  std::vector<double> result(times.size(), 0.0);
  for (std::size_t m = 0; m < times.size(); ++m) {
    const std::uint64_t end = m + 1 < times.size() ? times[m + 1] : errors.size();
    for (std::uint64_t step = times[m]; step < end; ++step) result[m] = std::max(result[m], errors[step]);
  }
  return result;
}

}  // namespace starling::lab
