// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "starling/base/clock.h"
#include "starling/base/error.h"
#include "starling/cli/commands.h"
#include "starling/cli/interrupts.h"
#include "starling/cli/launch.h"
#include "starling/cli/train_console.h"
#include "starling/cli/train_flags.h"
#include "starling/cli/train_output.h"
#include "starling/cli/watch.h"
#include "starling/data/dataset.h"
#include "starling/lab/event_file.h"
#include "starling/run/checkpoint.h"
#include "starling/run/replica_set.h"
#include "starling/run/run_config.h"
#include "starling/run/run_directory.h"
#include "starling/run/run_result.h"
#include "starling/run/train_observers.h"
#include "starling/run/trainer.h"

namespace starling::cli {
namespace {

void say(const std::string& text) {
  static_cast<void>(std::fputs(text.c_str(), stderr));
  static_cast<void>(std::fflush(stderr));
}

// A run that is ready to begin or to go on.
struct Prepared {
  run::RunConfig config;
  std::optional<run::RunDirectory> directory{};
  std::optional<run::Checkpoint> checkpoint{};
};

bool is_first(const fabric::MpiJob* job) { return job == nullptr || job->rank() == 0; }

// What was begun on a cluster is done by threads where no launcher has started this.
void use_threads_without(const fabric::MpiJob* job, run::RunConfig& config) {
  if (job == nullptr && config.fabric.name == "mpi") config.fabric.name = "threads";
}

Prepared prepare_new(const TrainFlags& flags, const fabric::MpiJob* job) {
  if (!flags.checkpoint.empty()) throw UserError("--checkpoint says where to go on from: give it with --resume RUN");
  Prepared prepared;
  if (!flags.config.empty()) prepared.config = run::read_run_config(flags.config);
  apply(flags, job, prepared.config);
  use_threads_without(job, prepared.config);
  run::validate(prepared.config);
  if (is_first(job)) run::RunDirectory::require_free(prepared.config.out);
  return prepared;
}

Prepared prepare_resumed(const TrainFlags& flags, const fabric::MpiJob* job) {
  if (!flags.config.empty() || !flags.out.empty()) {
    throw UserError(fmt::format("--resume {} takes configuration and directory from the run: leave --config and --out out", flags.resume));
  }
  Prepared prepared;
  // First, so that nobody changes the run while it is looked at. The first process has it for all.
  if (is_first(job)) prepared.directory = run::RunDirectory::open(flags.resume);
  const run::RunConfig stored = run::RunDirectory::read_config(flags.resume);
  prepared.config = stored;
  apply(flags, job, prepared.config);
  use_threads_without(job, prepared.config);
  if (const auto conflict = run::conflict(stored, prepared.config)) {
    throw UserError(
        fmt::format("--resume goes on with the run as it was begun, but {}. Leave the flag out, or begin another run with --config "
                    "{}/config.toml.",
                    *conflict, flags.resume));
  }
  run::validate(prepared.config);
  const run::CheckpointStore store(run::RunDirectory::checkpoints_in(flags.resume));
  // A run that was killed before its first checkpoint starts from the beginning.
  if (flags.checkpoint.empty() && !store.latest() && store.names().empty()) return prepared;
  prepared.checkpoint = store.read(flags.checkpoint.empty() ? "latest" : flags.checkpoint);
  const data::BatchOrder::Position& position = prepared.checkpoint->state.position;
  if (position.epoch + (position.sample > 0 ? 1 : 0) > prepared.config.epochs) {
    throw UserError(fmt::format("the run has done {} epochs{} already, more than --epochs {}; give at least {}", position.epoch,
                                position.sample > 0 ? " and a part" : "", prepared.config.epochs,
                                position.epoch + (position.sample > 0 ? 1 : 0)));
  }
  return prepared;
}

// The log that TensorBoard reads, where it is asked for, or the run that goes on has one.
std::unique_ptr<lab::EventLog> begin_events(const TrainFlags& flags, const Prepared& prepared, bool resumed) {
  const std::string folder = prepared.directory->path() + "/tensorboard";
  if (!flags.tensorboard && !(resumed && std::filesystem::is_directory(folder))) return nullptr;
  lab::EventLogOptions options;
  if (prepared.checkpoint) {
    options.first_step = prepared.checkpoint->state.workers.at(0).progress.number + 1;
    options.seconds = prepared.checkpoint->state.seconds;
  }
  // In the simulator nothing may depend on when it was.
  if (prepared.config.fabric.name != "sim") options.wall_clock = unix_seconds;
  return std::make_unique<lab::EventLog>(folder, std::move(options));
}

// Prints the result, and returns the exit code that it means.
int print_result(const TrainFlags& flags, const Prepared& prepared, const run::TrainResult& result) {
  fmt::print("{}", summary_of(prepared.config, prepared.directory->path(), result));
  if (flags.json) fmt::print("{}\n", run::to_json(prepared.config, prepared.directory->path(), result));
  std::fflush(stdout);
  if (!result.balance.balanced) {
    std::string errors;
    for (const std::string& error : result.balance.errors) errors += fmt::format("  {}\n", error);
    say(fmt::format("starling: the books do not balance:\n{}", errors));
    return kUnbalanced;
  }
  if (result.ending == run::Ending::interrupted) {
    say(fmt::format("Interrupted{}. To go on:\n  starling train --resume {}\n",
                    result.back_to_checkpoint ? "; what came after the last checkpoint will be done again" : "",
                    prepared.directory->path()));
    return kInterrupted;
  }
  if (result.ending == run::Ending::diverged) {
    say(fmt::format(
        "starling: the run diverged: {}. The last checkpoint is from before: {}\nTry a smaller --lr, --clip-norm 1 or a --warmup{}.\n",
        result.reason, result.checkpoint, prepared.config.on_nan == run::OnNan::skip ? "" : "; --on-nan skip leaves such batches out"));
    return kDiverged;
  }
  return 0;
}

std::ofstream open_trace(const TrainFlags& flags, const run::RunConfig& config) {
  std::ofstream trace;
  if (flags.trace.empty()) return trace;
  if (config.fabric.name != "sim") throw UserError("--trace writes the events of the simulator: give --fabric sim with it");
  trace.open(flags.trace);
  if (!trace) throw UserError(fmt::format("cannot write the trace to '{}': {}", flags.trace, std::strerror(errno)));
  return trace;
}

std::unique_ptr<fabric::Fabric> make_job_fabric(fabric::MpiJob& job, const Prepared& prepared) {
  fabric::FabricOptions options = prepared.config.fabric.sim;
  options.ranks = job.size();
  return job.make_fabric(options, prepared.config.fabric.mpi);
}

std::string opening(const Prepared& prepared, bool resumed, const run::ReplicaSet& replicas, const data::Dataset& dataset,
                    const fabric::MpiJob* job) {
  const run::RunConfig& config = prepared.config;
  const std::string from = prepared.checkpoint ? fmt::format(" from {}", prepared.checkpoint->name)
                           : resumed           ? " from the beginning: it has no checkpoint yet"
                                               : "";
  return fmt::format("{} on {}: {} parameters, {} samples, {} to test\n{}; fabric {}, seed {}\n{}{} {}{}\n", config.model, config.data,
                     replicas.layout().parameter_count(), dataset.train.count, dataset.test.count, roles_text(config), config.fabric.name,
                     config.seed(), job != nullptr ? job_text(*job, config) + "\n" : "", resumed ? "resuming" : "writing to",
                     prepared.directory->path(), from);
}

// One of the processes of a job that is not the first: it trains, and leaves files and people to the first.
void train_along(Prepared& prepared, const data::Dataset& dataset, fabric::Fabric& fabric) {
  const run::ReplicaSet replicas(prepared.config, dataset, strategy::Registry::built_in(), fabric.local_ranks());
  run::Trainer trainer(prepared.config, replicas.pointers(), dataset,
                       {.stop = interrupted, .viewers = replicas.viewers(), .fabric = &fabric});
  if (prepared.checkpoint) trainer.restore(*prepared.checkpoint);
  prepared.checkpoint.reset();  // It has the vectors of all ranks.
  trainer.run();
}

int train(const TrainFlags& flags, fabric::MpiJob* job) {
  const bool resumed = !flags.resume.empty();
  Prepared prepared = resumed ? prepare_resumed(flags, job) : prepare_new(flags, job);
  const run::RunConfig& config = prepared.config;
  const std::unique_ptr<fabric::Fabric> fabric = job != nullptr ? make_job_fabric(*job, prepared) : nullptr;
  const data::Dataset dataset = data::load_dataset(config.data, config.data_folder);
  if (!is_first(job)) {
    train_along(prepared, dataset, *fabric);
    return 0;
  }
  const run::ReplicaSet replicas(config, dataset, strategy::Registry::built_in(),
                                 fabric ? fabric->local_ranks() : std::vector<fabric::Rank>());
  std::ofstream trace = open_trace(flags, config);
  std::optional<Watch> watch;
  if (flags.watch) watch.emplace(parse_port(*flags.watch));
  TrainConsole console;
  run::TrainObservers observers{&console};
  run::Trainer trainer(config, replicas.pointers(), dataset,
                       {.observer = &observers,
                        .stop = interrupted,
                        .trace = trace.is_open() ? &trace : nullptr,
                        .viewers = replicas.viewers(),
                        .fabric = fabric.get()});
  // Nothing is written before this.
  if (!resumed) prepared.directory = run::RunDirectory::create(config.out, config);
  trainer.write_into(*prepared.directory);
  if (prepared.checkpoint) trainer.restore(*prepared.checkpoint);
  if (resumed) prepared.directory->write_config(config);  // It may have more epochs now.
  const std::unique_ptr<lab::EventLog> events = begin_events(flags, prepared, resumed);
  if (events) observers.add(*events);
  say(opening(prepared, resumed, replicas, dataset, job));
  if (watch) {
    watch->start(prepared.directory->path());
    say(fmt::format("watch it at {}\n", watch->address()));
  }
  prepared.checkpoint.reset();  // It has the vectors of all ranks.
  try {
    trainer.run();
  } catch (const std::exception&) {
    console.clear();
    throw;
  }
  console.clear();
  if (watch) watch->run_has_ended();
  if (trace.is_open()) {
    trace.close();
    if (!trace) throw UserError(fmt::format("cannot write the trace to '{}': {}", flags.trace, std::strerror(errno)));
    say(fmt::format("trace written to {}: open it in ui.perfetto.dev or chrome://tracing\n", flags.trace));
  }
  if (events && !events->failure().empty()) {
    say(fmt::format("note: {}; what came after it is not in the log, but in the metrics\n", events->failure()));
  } else if (events) {
    say(fmt::format("events written to {}: tensorboard --logdir {}\n", events->path(), prepared.directory->path()));
  }
  const int code = print_result(flags, prepared, trainer.result());
  if (watch) watch->finish();  // Last: nobody waits for a page but the shell.
  return code;
}

// In a job, what goes wrong in one process ends all.
int train_in(fabric::MpiJob& job, const TrainFlags& flags) {
  std::string message;
  int code = 1;
  try {
    return train(flags, &job);
  } catch (const UserError& error) {
    message = error.what();
    code = 2;
  } catch (const std::exception& error) {
    message = error.what();
  }
  job.fail(message, code);
  throw ExitCode{code};  // Not reached; of a virtual function the compiler does not know that it never returns.
}

void run_train(const TrainFlags& flags) {
  catch_interrupts();  // One that comes while data are read ends the run after its first step.
  const std::unique_ptr<fabric::MpiJob> job = join_job(flags.fabric);
  const int code = job ? train_in(*job, flags) : train(flags, nullptr);
  if (code != 0) throw ExitCode{code};
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model, on one worker or with a strategy on many");
  auto flags = std::make_shared<TrainFlags>();
  add_train_flags(*command, *flags);
  command->callback([flags] { run_train(*flags); });
}

}  // namespace starling::cli
