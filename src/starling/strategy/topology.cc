// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::strategy {
namespace {

using Lists = std::vector<std::vector<int>>;

std::vector<int>& at(Lists& lists, int worker) { return lists[static_cast<std::size_t>(worker)]; }

// Both ways, once, and never from a worker to itself: a torus of two rows reaches the same worker up and down.
void join(Lists& lists, int a, int b) {
  std::vector<int>& of_a = at(lists, a);
  if (a == b || std::find(of_a.begin(), of_a.end(), b) != of_a.end()) return;
  of_a.push_back(b);
  at(lists, b).push_back(a);
}

Lists no_links(int workers) { return Lists(static_cast<std::size_t>(workers)); }

// Worker i with i ± 1, …, i ± degree/2, and for an odd degree with the one opposite.
Lists circulant(int workers, int degree) {
  Lists lists = no_links(workers);
  for (int worker = 0; worker < workers; ++worker) {
    for (int distance = 1; distance <= degree / 2; ++distance) join(lists, worker, (worker + distance) % workers);
    if (degree % 2 == 1) join(lists, worker, (worker + workers / 2) % workers);
  }
  return lists;
}

Lists complete(int workers) {
  Lists lists = no_links(workers);
  for (int worker = 0; worker < workers; ++worker) {
    for (int other = 0; other < workers; ++other) {
      if (other != worker) at(lists, worker).push_back(other);
    }
  }
  return lists;
}

// The rows of the grid that is as square as possible; 0 if there is none with two rows and two columns.
int square_rows(int workers) {
  int rows = 0;
  for (int candidate = 2; candidate <= workers / candidate; ++candidate) {
    if (workers % candidate == 0) rows = candidate;
  }
  return rows;
}

bool fits_rows(int workers, int rows) {
  if (rows == 0) return square_rows(workers) > 0;
  return rows >= 2 && workers % rows == 0 && workers / rows >= 2;
}

// "6 (2 x 3), 8 (2 x 4), 9 (3 x 3)": the three nearest numbers of workers that make a grid.
std::string nearest_grids(int workers, int rows) {
  std::vector<int> sizes;
  constexpr std::size_t kNamed = 3;
  for (int distance = 1; sizes.size() < kNamed; ++distance) {
    if (workers - distance > 0 && fits_rows(workers - distance, rows)) sizes.push_back(workers - distance);
    if (sizes.size() < kNamed && fits_rows(workers + distance, rows)) sizes.push_back(workers + distance);
  }
  std::sort(sizes.begin(), sizes.end());
  std::string text;
  for (const int size : sizes) {
    const int high = rows == 0 ? square_rows(size) : rows;
    text += fmt::format("{}{} ({} x {})", text.empty() ? "" : ", ", size, high, size / high);
  }
  return text;
}

Lists torus(int workers, int rows) {
  if (rows == 1) throw UserError("rows is 1, but a torus has at least 2 rows; a single row is topology ring");
  if (!fits_rows(workers, rows)) {
    throw UserError(fmt::format("{} workers do not fill a torus{}, which has at least 2 rows and 2 columns; the nearest that do are {}",
                                workers, rows == 0 ? std::string() : fmt::format(" of {} rows", rows), nearest_grids(workers, rows)));
  }
  const int high = rows == 0 ? square_rows(workers) : rows;
  const int wide = workers / high;
  Lists lists = no_links(workers);
  for (int row = 0; row < high; ++row) {
    for (int column = 0; column < wide; ++column) {
      join(lists, row * wide + column, row * wide + (column + 1) % wide);
      join(lists, row * wide + column, (row + 1) % high * wide + column);
    }
  }
  return lists;
}

Lists hypercube(int workers) {
  int below = 1;
  while (below <= workers / 2) below *= 2;
  if (below != workers) {
    throw UserError(
        fmt::format("{} workers do not make a hypercube, which has a power of two; the nearest are {} and {}", workers, below, 2 * below));
  }
  Lists lists = no_links(workers);
  for (int worker = 0; worker < workers; ++worker) {
    for (int bit = 1; bit < workers; bit *= 2) join(lists, worker, worker ^ bit);
  }
  return lists;
}

bool fits_degree(int workers, int degree) { return degree >= 2 && degree < workers && (degree % 2 == 0 || workers % 2 == 0); }

void check_degree(int workers, int degree) {
  if (fits_degree(workers, degree)) return;
  std::vector<int> fitting;
  for (int distance = 1; distance < workers + degree; ++distance) {
    for (const int candidate : {degree - distance, degree + distance}) {
      constexpr std::size_t kNamed = 3;
      if (fitting.size() < kNamed && fits_degree(workers, candidate)) fitting.push_back(candidate);
    }
  }
  std::sort(fitting.begin(), fitting.end());
  throw UserError(fmt::format(
      "{} workers cannot have {} neighbours each: degree is at least 2 and less than the workers, and one of both is even; the nearest "
      "that fit {} workers: {}",
      workers, degree, workers, fmt::join(fitting, ", ")));
}

bool is_connected(const Lists& lists) {
  std::vector<char> seen(lists.size());
  std::vector<int> open{0};
  seen[0] = 1;
  std::size_t reached = 0;
  while (!open.empty()) {
    const auto worker = static_cast<std::size_t>(open.back());
    open.pop_back();
    ++reached;
    for (const int next : lists[worker]) {
      if (std::exchange(seen[static_cast<std::size_t>(next)], char{1}) == 0) open.push_back(next);
    }
  }
  return reached == lists.size();
}

// Takes the links a-b and c-d at random and makes them a-d and c-b, where that leaves a simple graph. Degrees stay.
void switch_links(Lists& lists, RandomStream& random) {
  const auto any = [&](std::size_t bound) { return static_cast<std::size_t>(random.below(bound)); };
  const auto a = static_cast<int>(any(lists.size()));
  const auto c = static_cast<int>(any(lists.size()));
  std::vector<int>& of_a = at(lists, a);
  std::vector<int>& of_c = at(lists, c);
  int& b = of_a[any(of_a.size())];
  int& d = of_c[any(of_c.size())];
  const auto joined = [&](int x, int y) { return std::find(at(lists, x).begin(), at(lists, x).end(), y) != at(lists, x).end(); };
  if (a == c || a == d || b == c || b == d || joined(a, d) || joined(c, b)) return;
  std::replace(at(lists, b).begin(), at(lists, b).end(), a, c);
  std::replace(at(lists, d).begin(), at(lists, d).end(), c, a);
  std::swap(b, d);
}

// Drawing pairs until they happen to make a simple graph takes for ever where degrees are large. Switching links of a regular graph comes
// to any other; rounds of it that leave the graph in pieces are taken back, so it ends and is connected. The numbers of the workers are
// shuffled too, which alone makes two neighbours each a ring in any order.
Lists random_regular(int workers, int degree, std::uint64_t seed) {
  RandomStream random(seed, 0, "topology");
  Lists lists = circulant(workers, degree);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    Lists switched = lists;
    for (int i = 0; i < workers * degree / 2; ++i) switch_links(switched, random);
    if (is_connected(switched)) lists = std::move(switched);
  }
  std::vector<int> names;
  for (int worker = 0; worker < workers; ++worker) {
    const auto place = static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(worker) + 1));
    names.push_back(worker);
    std::swap(names[place], names.back());
  }
  Lists named = no_links(workers);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const int neighbour : lists[i]) at(named, names[i]).push_back(names[static_cast<std::size_t>(neighbour)]);
  }
  return named;
}

Lists make_lists(const TopologyOptions& options, int workers) {
  constexpr int kOneLink = 2;
  if (workers <= kOneLink || options.kind == "complete") return complete(workers);
  if (options.kind == "torus") return torus(workers, options.rows);
  if (options.kind == "hypercube") return hypercube(workers);
  if (options.kind == "random") {
    check_degree(workers, options.degree);
    return random_regular(workers, options.degree, options.seed);
  }
  STARLING_CHECK(options.kind == "ring", fmt::format("there is no topology '{}'", options.kind));
  return circulant(workers, 2);
}

}  // namespace

Topology Topology::make(const TopologyOptions& options, int workers) {
  STARLING_CHECK(workers >= 1, std::string("a topology has at least one worker"));
  Lists lists = make_lists(options, workers);
  for (std::vector<int>& list : lists) std::sort(list.begin(), list.end());
  STARLING_CHECK(is_connected(lists), fmt::format("topology {} of {} workers is in pieces", options.kind, workers));
  return Topology(std::move(lists));
}

std::vector<Option> topology_options(const std::string& standard) {
  constexpr int kMost = 100'000;
  return {Option::choice("topology", standard, {"ring", "torus", "hypercube", "random", "complete"}, "who is next to whom"),
          Option::integer("rows", 0, 0, kMost, "of a torus; 0: as square as the number of workers allows"),
          Option::integer("degree", 4, 2, kMost, "neighbours of each worker, where topology is random")};
}

TopologyOptions topology_of(const Settings& settings, std::uint64_t seed) {
  return {.kind = settings.choice("topology"),
          .rows = static_cast<int>(settings.integer("rows")),
          .degree = static_cast<int>(settings.integer("degree")),
          .seed = seed};
}

}  // namespace starling::strategy
