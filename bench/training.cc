// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A training step (gradient of a batch, then momentum) on one thread, side by side in one run: Starling's native engine, its torch replica,
// LibTorch from C++, and PyTorch from Python. The columns take turns, round after round; medians are printed. LibTorch and PyTorch get
// their batch as floats and ready; the native engine reads bytes and standardises them as it does in training.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "bench/fma_peak.h"
#include "bench/measure.h"
#include "bench/rival.h"
#include "starling/base/random.h"
#include "starling/compute/model.h"
#include "starling/compute/network.h"
#include "starling/optim/optimiser.h"

namespace starling::bench {
namespace {

constexpr double kSecondsPerRound = 0.4;
constexpr int kRounds = 7;

// From the start of a program to the end of its first training step, and the most memory it had by then.
struct Start {
  double seconds = 0;
  double peak_bytes = 0;
};

class NativeTrainer {
 public:
  NativeTrainer(const std::string& model, std::size_t batch, const data::Samples& samples)
      : samples_(samples),
        replica_(compute::make_replica(model, compute::Problem::of(samples), 1, 0)),
        optimiser_(optim::make_optimiser({.name = "momentum"}, replica_->layout())),
        indices_(batch) {
    std::iota(indices_.begin(), indices_.end(), 0U);
    step();
  }

  double samples_per_second() {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t steps = 0;
    while (seconds_since(begin) < kSecondsPerRound) {
      step();
      ++steps;
    }
    return static_cast<double>(steps * indices_.size()) / seconds_since(begin);
  }

 private:
  void step() {
    replica_->compute_gradient({.samples = &samples_, .indices = indices_, .number = 0});
    optimiser_->step(replica_->weights(), replica_->gradient(), 1e-4);
  }

  const data::Samples& samples_;
  std::unique_ptr<compute::Replica> replica_;
  std::unique_ptr<optim::Optimiser> optimiser_;
  std::vector<std::uint32_t> indices_;
};

// Operations of a step, two per multiply-add: forward, gradient of the weights, and gradient of the inputs of all layers but the first.
double operations_per_step_sample(const std::string& model, const data::Samples& samples) {
  compute::Network network = compute::parse_network(model, compute::Problem::of(samples));
  const double all = network.operations_per_sample();
  network.layers.resize(1);
  return 3 * all - network.operations_per_sample();
}

Start start_of(const std::vector<std::string>& command) {
  const auto begin = std::chrono::steady_clock::now();
  Rival rival(command);
  if (rival.measure("lenet5", 64, 0).empty()) return {};
  const double seconds = seconds_since(begin);
  return {.seconds = seconds, .peak_bytes = rival.end()};
}

void print_starts(const std::vector<std::pair<const char*, std::vector<std::string>>>& programs) {
  fmt::print("\nfrom the start of the program to the end of the first step of lenet5, batch 64, and the most memory it had:\n");
  for (const auto& [name, command] : programs) {
    std::vector<double> seconds;
    double peak = 0;
    for (int round = 0; round < 5; ++round) {
      const Start start = start_of(command);
      seconds.push_back(start.seconds);
      peak = std::max(peak, start.peak_bytes);
    }
    if (peak > 0) fmt::print("  {:<10}{:>8.0f} ms{:>8.0f} MB\n", name, 1e3 * median(seconds), peak / 1e6);
  }
}

// The native engine as a rival of itself, for its start.
void answer_requests() {
  const data::Samples samples = random_images(256);
  std::puts("ready");
  std::fflush(stdout);
  char line[256];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    NativeTrainer native("lenet5", 64, samples);
    std::puts("native=1");
    std::fflush(stdout);
  }
}

std::string cell(const std::map<std::string, std::vector<double>>& results, const std::string& name) {
  const auto found = results.find(name);
  return found == results.end() ? "-" : fmt::format("{:.0f}", median(found->second));
}

void run(const std::string& folder) {
  const data::Samples samples = random_images(256);
  const std::vector<std::string> torch_command{folder + "/training_torch"};
  const std::vector<std::string> python_command{"/usr/bin/python3", folder + "/training_torch.py"};
  Rival torch(torch_command);
  Rival python(python_command);
  print_load("before");
  fmt::print("\n{:<22}{:>6}{:>10}{:>14}{:>12}{:>10}{:>12}{:>12}{:>12}\n", "samples per second", "batch", "native", "torch replica",
             "LibTorch", "PyTorch", "× LibTorch", "Gflop/s", "of FMA peak");
  for (const std::string model : {"lenet5", "mlp:784-1000-1000-10"}) {
    for (const std::size_t batch : {32UL, 64UL, 256UL}) {
      NativeTrainer native(model, batch, samples);
      std::map<std::string, std::vector<double>> results;
      std::vector<double> peaks;
      for (int round = 0; round < kRounds; ++round) {
        results["native"].push_back(native.samples_per_second());
        peaks.push_back(fma_peak());
        for (Rival* rival : {&torch, &python}) {
          for (const auto& [name, value] : rival->measure(model, batch, kSecondsPerRound)) results[name].push_back(value);
        }
      }
      const double speed = median(results["native"]);
      const double flops = speed * operations_per_step_sample(model, samples);
      const std::string times = results.contains("libtorch") ? fmt::format("{:.2f}", speed / median(results["libtorch"])) : "-";
      fmt::print("{:<22}{:>6}{:>10}{:>14}{:>12}{:>10}{:>12}{:>12.1f}{:>11.0f}%\n", model, batch, cell(results, "native"),
                 cell(results, "replica"), cell(results, "libtorch"), cell(results, "pytorch"), times, flops / 1e9,
                 100 * flops / median(peaks));
      std::fflush(stdout);
    }
  }
  print_starts({{"native", {folder + "/training", "--answer"}}, {"LibTorch", torch_command}, {"PyTorch", python_command}});
  fmt::print("\n");
  print_load("after");
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  if (argc > 1) {
    starling::bench::answer_requests();
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);  // A rival that cannot start leaves its column empty.
  starling::bench::run(std::filesystem::path(argv[0]).parent_path());
  return 0;
}
