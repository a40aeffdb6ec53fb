// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/rank_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "starling/base/error.h"

namespace starling::fabric {
namespace {

std::optional<Rank> parse_rank(std::string_view text) {
  Rank rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace

RankSet::RankSet(std::initializer_list<Rank> ranks) {
  for (const Rank rank : ranks) ranges_.emplace_back(rank, rank);
}

RankSet RankSet::parse(std::string_view text, std::string_view what) {
  RankSet set;
  if (text == "all") return set;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t dash = part.find('-');
    const std::optional<Rank> first = parse_rank(part.substr(0, dash));
    const std::optional<Rank> last = dash == std::string_view::npos ? first : parse_rank(part.substr(dash + 1));
    if (!first || !last || *last < *first) {
      throw UserError(fmt::format("{} is '{}', but ranks are given as all, 3, 1-7 or 0,2-3", what, text));
    }
    set.ranges_.emplace_back(*first, *last);
    if (comma == std::string_view::npos) return set;
    rest.remove_prefix(comma + 1);
  }
}

std::string RankSet::text() const {
  if (ranges_.empty()) return "all";
  std::string text;
  for (const auto& [first, last] : ranges_) {
    if (!text.empty()) text += ',';
    text += first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

bool RankSet::contains(Rank rank) const {
  return ranges_.empty() ||
         std::any_of(ranges_.begin(), ranges_.end(), [rank](const auto& range) { return range.first <= rank && rank <= range.second; });
}

void RankSet::validate(int ranks, std::string_view what) const {
  for (const auto& [first, last] : ranges_) {
    if (first < 0 || last >= ranks) {
      throw UserError(fmt::format("{} names rank {}, but there are {} ranks: 0 to {}", what, first < 0 ? first : last, ranks, ranks - 1));
    }
  }
}

}  // namespace starling::fabric
