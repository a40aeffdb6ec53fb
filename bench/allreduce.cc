// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The all-reduce of two ranks, side by side in one run: Starling's native one on threads, its ring by messages, a reduction written by hand
// in shared memory, and memcpy for what the memory can do; then of two processes: Starling's on MPI, MPI_Allreduce, and gloo through
// PyTorch. The columns take turns, round after round; medians are printed.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "bench/launch.h"
#include "bench/measure.h"
#include "bench/rival.h"
#include "starling/base/floats.h"
#include "starling/base/notifier.h"
#include "starling/collective/collective.h"
#include "starling/fabric/threads/threads_fabric.h"

namespace starling::bench {
namespace {

using collective::Algorithm;

double measure_starling(Algorithm algorithm, std::size_t floats, int repeat) {
  fabric::FabricOptions options;
  options.ranks = 2;
  fabric::ThreadsFabric fabric(options);
  double seconds = 0;
  const fabric::RunReport report = fabric.run([&](fabric::Endpoint& endpoint) -> Status {
    const fabric::Group world = fabric::Group::world(2);
    std::vector<float> values(floats);
    for (int i = 0; i < 2; ++i) STARLING_TRY(collective::all_reduce(endpoint, world, values, {.algorithm = algorithm}));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) STARLING_TRY(collective::all_reduce(endpoint, world, values, {.algorithm = algorithm}));
    if (endpoint.rank() == 0) seconds = seconds_since(begin) / repeat;
    return {};
  });
  if (!report.ok()) fmt::print("{}", report.summary());
  return seconds;
}

// The barrier that the two below are written with: two threads that spin, nothing else.
class SpinBarrier {
 public:
  void wait() {
    const int goal = (arrived_.fetch_add(1) / 2 + 1) * 2;
    while (arrived_.load(std::memory_order_acquire) < goal) spin_pause();
  }

 private:
  std::atomic<int> arrived_{0};
};

// Runs `work(rank, barrier)` on two threads, `repeat` times, and returns the time of one.
template <class Work>
double measure_pair(int repeat, Work work) {
  SpinBarrier barrier;
  double seconds = 0;
  const auto run = [&](int rank) {
    work(rank, barrier);
    barrier.wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) work(rank, barrier);
    if (rank == 0) seconds = seconds_since(begin) / repeat;
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  return seconds;
}

// The least one can do: each thread adds up one half, straight into both vectors.
double measure_by_hand(std::size_t floats, int repeat) {
  std::vector<float> vectors[2]{std::vector<float>(floats), std::vector<float>(floats)};
  float* a = vectors[0].data();
  float* b = vectors[1].data();
  return measure_pair(repeat, [&](int rank, SpinBarrier& barrier) {
    barrier.wait();
    const std::size_t begin = rank == 0 ? 0 : floats / 2;
    const std::size_t end = rank == 0 ? floats / 2 : floats;
    add_floats_to_both({a + begin, end - begin}, {b + begin, end - begin});
    barrier.wait();
  });
}

// Each thread copies the other's vector. An all-reduce that puts its result elsewhere cannot be faster; one in place can, as only half of
// the data changes sides.
double measure_memcpy(std::size_t floats, int repeat) {
  std::vector<float> vectors[2]{std::vector<float>(floats), std::vector<float>(floats)};
  std::vector<float> copies[2]{std::vector<float>(floats), std::vector<float>(floats)};
  return measure_pair(repeat, [&](int rank, SpinBarrier& barrier) {
    barrier.wait();
    std::memcpy(copies[rank].data(), vectors[1 - rank].data(), floats * sizeof(float));
  });
}

struct Processes {
  double plain = 0;
  double starling = 0;
};

// Seconds by number of floats, as the MPI program prints them; empty if it cannot be run.
std::map<std::size_t, Processes> measure_mpi() {
  std::map<std::size_t, Processes> result;
  for (const std::string& line : run_ranks(2, "allreduce_mpi", "")) {
    std::size_t floats = 0;
    Processes seconds;
    if (std::sscanf(line.c_str(), "%zu %lf %lf", &floats, &seconds.plain, &seconds.starling) == 3) result[floats] = seconds;
  }
  return result;
}

std::string cell(double seconds) { return seconds == 0 ? "-" : format_duration(from_seconds(seconds)); }

void run() {
  constexpr int kRounds = 7;
  const std::vector<std::string> columns{"native", "ring", "by hand", "memcpy", "on MPI", "Open MPI", "gloo"};
  std::map<std::pair<std::string, std::size_t>, std::vector<double>> measured;
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  Rival gloo({"/usr/bin/python3", folder + "/allreduce_gloo.py"});
  print_load("before");
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t floats : kAllReduceFloats) {
      const int repeat = repetitions(floats);
      measured[{"native", floats}].push_back(measure_starling(Algorithm::automatic, floats, repeat));
      measured[{"ring", floats}].push_back(measure_starling(Algorithm::ring, floats, repeat));
      measured[{"by hand", floats}].push_back(measure_by_hand(floats, repeat));
      measured[{"memcpy", floats}].push_back(measure_memcpy(floats, repeat));
    }
    for (const auto& [floats, seconds] : measure_mpi()) {
      measured[{"Open MPI", floats}].push_back(seconds.plain);
      measured[{"on MPI", floats}].push_back(seconds.starling);
    }
    for (const std::size_t floats : kAllReduceFloats) {
      for (const auto& [name, seconds] : gloo.measure("allreduce", floats, std::min(2000, repetitions(floats)))) {
        measured[{name, floats}].push_back(seconds);
      }
    }
  }
  print_load("after");

  fmt::print("\nAll-reduce of two ranks, time of one, median of {} rounds\n\n{:>12}", kRounds, "floats");
  for (const std::string& column : columns) fmt::print("{:>11}", column);
  fmt::print("{:>17}{:>17}{:>14}\n", "native/by hand", "Open MPI/on MPI", "gloo/on MPI");
  for (const std::size_t floats : kAllReduceFloats) {
    const auto value = [&](const std::string& column) { return median(measured[{column, floats}]); };
    fmt::print("{:>12}", floats);
    for (const std::string& column : columns) fmt::print("{:>11}", cell(value(column)));
    fmt::print("{:>16.2f}x{:>16.2f}x{:>13.2f}x\n", value("native") / value("by hand"), value("Open MPI") / value("on MPI"),
               value("gloo") / value("on MPI"));
  }
  fmt::print(
      "\nnative: threads, shared memory. ring: threads, messages. by hand: two threads, a spin barrier, a vector loop.\n"
      "memcpy: each of two threads copies the other's vector. on MPI: Starling's fabric in two processes.\n"
      "Open MPI: MPI_Allreduce in place, in the same two processes (mpirun -n 2 --bind-to core). gloo: PyTorch, two processes on "
      "loopback.\n");
}

}  // namespace
}  // namespace starling::bench

int main() { starling::bench::run(); }
