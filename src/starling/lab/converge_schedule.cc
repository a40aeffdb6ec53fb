// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/converge_schedule.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

constexpr std::array<std::pair<Choice, const char*>, 4> kChoices{
    {{Choice::all, "all"}, {Choice::cyclic, "cyclic"}, {Choice::one, "one"}, {Choice::random, "random"}}};

constexpr std::uint64_t kLargestDelay = 1000000;

[[noreturn]] void refuse_delays(std::string_view text) {
  throw UserError(
      fmt::format("the delays are '{}', but they are none, bounded:D with a whole number D up to {}, or growing:FRACTION with a "
                  "fraction of k above 0 and below 1, as in bounded:8 or growing:0.5.{}",
                  text, kLargestDelay, nearest_name_hint(text, {"none", "bounded:8", "growing"})));
}

template <typename Number>
Number parse_number(std::string_view part, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size()) refuse_delays(text);
  return value;
}

}  // namespace

Delays Delays::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const bool has_value = colon != std::string_view::npos;
  const std::string_view value = has_value ? text.substr(colon + 1) : std::string_view();
  Delays delays;
  if (name == "none" && !has_value) return delays;
  if (name == "bounded" && has_value) {
    delays.kind = Kind::bounded;
    delays.most = parse_number<std::uint64_t>(value, text);
    if (delays.most > kLargestDelay) refuse_delays(text);
    return delays;
  }
  if (name != "growing") refuse_delays(text);
  delays.kind = Kind::growing;
  if (has_value) delays.fraction = parse_number<double>(value, text);
  if (!(delays.fraction > 0 && delays.fraction < 1)) refuse_delays(text);
  return delays;
}

std::string Delays::text() const {
  if (kind == Kind::bounded) return fmt::format("bounded:{}", most);
  return kind == Kind::growing ? fmt::format("growing:{}", fraction) : "none";
}

std::uint64_t Delays::limit(std::uint64_t step) const {
  if (kind == Kind::bounded) return most;
  return kind == Kind::growing ? static_cast<std::uint64_t>(std::floor(fraction * static_cast<double>(step))) : 0;
}

Choice parse_choice(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [choice, its_name] : kChoices) {
    if (name == its_name) return choice;
    names.emplace_back(its_name);
  }
  throw UserError(
      fmt::format("the schedule is '{}', but it is one of {}.{}", name, fmt::join(names, ", "), nearest_name_hint(name, names)));
}

const char* to_string(Choice choice) {
  for (const auto& [candidate, name] : kChoices) {
    if (candidate == choice) return name;
  }
  return "";
}

DrawnSchedule::DrawnSchedule(const ScheduleOptions& options)
    : options_(options), choices_(options.seed, 0, "converge choices"), ages_(options.seed, 0, "converge delays") {
  STARLING_CHECK(options.blocks > 0, std::string("a schedule has blocks"));
  if (options.idle_block && *options.idle_block >= options.blocks) {
    throw UserError(fmt::format("the idle block is {}, but with {} blocks it must be 0 to {}", *options.idle_block, options.blocks,
                                options.blocks - 1));
  }
  if (options.idle_block && options.blocks == 1) throw UserError("the only block is idle: give at least 2 blocks");
  for (std::size_t block = 0; block < options.blocks; ++block) {
    if (block != options.idle_block) active_.push_back(block);
  }
}

std::vector<std::size_t> DrawnSchedule::choose(std::uint64_t step) {
  switch (options_.choice) {
    case Choice::all:
      return active_;
    case Choice::cyclic:
      return {active_[(step - 1) % active_.size()]};
    case Choice::one:
      return {active_[choices_.below(active_.size())]};
    case Choice::random:
      break;
  }
  std::vector<std::size_t> chosen;
  for (const std::size_t block : active_) {
    if (choices_.below(2) == 0) chosen.push_back(block);
  }
  if (chosen.empty()) chosen.push_back(active_[choices_.below(active_.size())]);
  return chosen;
}

std::vector<BlockUpdate> DrawnSchedule::updates(std::uint64_t step) {
  std::vector<BlockUpdate> result;
  const std::uint64_t limit = options_.delays.limit(step);
  for (const std::size_t block : choose(step)) {
    BlockUpdate update{.block = block, .labels = std::vector<std::uint64_t>(options_.blocks, step - 1)};
    for (std::size_t other = 0; other < options_.blocks && limit > 0; ++other) {
      const std::uint64_t delay = ages_.below(limit + 1);
      if (other != block) update.labels[other] -= std::min(delay, step - 1);
    }
    result.push_back(std::move(update));
  }
  return result;
}

std::uint64_t DrawnSchedule::oldest_label(std::uint64_t step) const { return step - 1 - std::min(options_.delays.limit(step), step - 1); }

}  // namespace starling::lab
