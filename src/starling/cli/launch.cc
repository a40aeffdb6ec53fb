// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "starling/base/error.h"
#include "starling/cli/commands.h"
#include "starling/strategy/registry.h"

namespace starling::cli {
namespace {

// The first of these variables that holds a number.
template <std::size_t kCount>
std::optional<int> number_in(const std::array<const char*, kCount>& names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view view(text);
    int number = 0;
    if (std::from_chars(view.data(), view.data() + view.size(), number).ec == std::errc()) return number;
  }
  return std::nullopt;
}

// Open MPI's mpirun; MPICH's, and Slurm's pmi2; Slurm's pmix.
constexpr std::array<const char*, 3> kRankNames{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
constexpr std::array<const char*, 3> kSizeNames{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};

bool started_for_mpi() { return number_in(kRankNames).has_value(); }

// "0-2", "3", "0, 4-5".
std::string ranges_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> from_to(int begin, int end) {
  std::vector<int> ranks;
  for (int rank = begin; rank < end; ++rank) ranks.push_back(rank);
  return ranks;
}

std::string hosts_text(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    if (std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
  }
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      if (hosts[rank] == name) ranks.push_back(static_cast<int>(rank));
    }
    parts.push_back(fmt::format("{} ({})", name, ranges_text(ranks)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

int process_rank() { return number_in(kRankNames).value_or(0); }
int process_count() { return started_for_mpi() ? number_in(kSizeNames).value_or(1) : 1; }

namespace {

// The configuration is not read yet, so it is the environment that says how long a start may take.
fabric::MpiJobOptions job_options() {
  fabric::MpiJobOptions options;
  if (const char* text = std::getenv("STARLING_START_TIMEOUT")) options.start_timeout = parse_duration(text, "STARLING_START_TIMEOUT");
  options.speaks_after = process_rank();
  options.say = [](std::string message) {
    while (message.ends_with('\n')) message.pop_back();
    const std::string who = process_rank() == 0 ? "" : fmt::format("rank {}: ", process_rank());
    fmt::print(stderr, "starling: {}{}\n", who, message);
  };
  return options;
}

// Where a process cannot even join, as one on a machine without an MPI library, the others would wait for it: so it is said by whomever it
// befalls, and not by the first alone.
std::unique_ptr<fabric::MpiJob> join() {
  const fabric::MpiJobOptions options = job_options();
  try {
    return fabric::join_mpi_job(options);
  } catch (const UserError& error) {
    if (process_rank() == 0) throw;
    options.say(error.what());
    throw ExitCode{2};
  }
}

}  // namespace

std::unique_ptr<fabric::MpiJob> join_job(const std::optional<std::string>& fabric) {
  const bool wants_mpi = fabric && *fabric == "mpi";
  if (!started_for_mpi()) {
    if (const auto tasks = number_in(std::array<const char*, 1>{"SLURM_STEP_NUM_TASKS"}); tasks.value_or(1) > 1) {
      if (number_in(std::array<const char*, 1>{"SLURM_PROCID"}).value_or(0) > 0) throw ExitCode{2};  // The first speaks.
      throw UserError(fmt::format(
          "srun has started {} tasks, but without a way for MPI to join them: give srun --mpi=pmix ('srun --mpi=list' shows what there is)",
          *tasks));
    }
    return wants_mpi ? join() : nullptr;
  }
  if (!fabric || wants_mpi) return join();
  if (process_count() > 1) {
    throw UserError(fmt::format(
        "--fabric {} runs in one process, but {} were started, which would all do the same: leave the flag out, or start one process",
        *fabric, process_count()));
  }
  return nullptr;
}

void fit_to_job(const fabric::MpiJob& job, bool workers_given, run::RunConfig& config) {
  config.fabric.name = "mpi";
  const strategy::Registry registry = strategy::Registry::built_in();
  if (!workers_given) {
    if (config.strategy.empty()) {
      config.workers = job.size();
    } else {
      const strategy::Roles roles = config.roles(registry.find(config.strategy));
      config.workers = job.size() - roles.servers - roles.generators;
      if (config.workers < 1) {
        throw UserError(fmt::format(
            "strategy {} has {} besides its workers, so that {} {} are too few: start at least {}", config.strategy,
            roles.servers > 0 ? fmt::format("{} {}", roles.servers, roles.servers == 1 ? "server" : "servers") : std::string("a generator"),
            job.size(), job.size() == 1 ? "process" : "processes", roles.servers + roles.generators + 1));
      }
    }
  }
  const strategy::Roles roles = config.roles(registry.find(config.strategy_name()));
  if (roles.ranks() != job.size()) {
    throw UserError(fmt::format("{} {}{}{} are {} ranks, but {} {} started: leave --workers out, or start {}{}", roles.workers,
                                roles.workers == 1 ? "worker" : "workers",
                                roles.servers > 0 ? fmt::format(", {} {}", roles.servers, roles.servers == 1 ? "server" : "servers") : "",
                                roles.generators > 0 ? ", 1 generator" : "", roles.ranks(), job.size(),
                                job.size() == 1 ? "process was" : "processes were", roles.ranks(),
                                job.size() == 1 ? "; --fabric threads runs all of them in one process" : ""));
  }
}

std::string job_text(const fabric::MpiJob& job, const run::RunConfig& config) {
  const strategy::Registry registry = strategy::Registry::built_in();
  const strategy::Roles roles = config.roles(registry.find(config.strategy_name()));
  std::string text = fmt::format("ranks {} {}", ranges_text(from_to(0, roles.workers)), roles.workers == 1 ? "worker" : "workers");
  if (roles.servers > 0) {
    text += fmt::format(", {} {}", ranges_text(from_to(roles.workers, roles.workers + roles.servers)),
                        roles.servers == 1 ? "server" : "servers");
  }
  if (roles.generators > 0) text += fmt::format(", {} generator", roles.generator());
  return fmt::format("{}; hosts {}; {}", text, hosts_text(job.hosts()), job.library());
}

}  // namespace starling::cli
