// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/train_flags.h"

#include <CLI/CLI.hpp>

#include "starling/cli/launch.h"

namespace starling::cli {

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  const CLI::Range count(std::uint64_t{0}, std::uint64_t{1'000'000'000});
  const CLI::Range positive(std::uint64_t{1}, std::uint64_t{1'000'000'000});
  // As a variable that is not set makes it.
  const CLI::Validator given([](const std::string& text) { return text.empty() ? std::string("it is empty") : std::string(); }, "");
  command.add_option(
      "--model", flags.model,
      "lenet5, mlp:784-100-10, softmax, cifar10-full, quadratic; a text such as 'dense 100, relu, dense 10'; or torch:FILE [lenet5]");
  command.add_option("--data", flags.data, "A data set, as fashion-mnist or blobs:classes=3 [fashion-mnist]");
  command.add_option("--data-folder", flags.data_folder, "Where the files of the data set are, in place of the usual folders");
  command.add_option(
      "--strategy", flags.strategy,
      "How workers train together: sync, async, easgd, ...; 'starling strategies' lists them [sequential; sync if there are workers]");
  command
      .add_option("--workers", flags.workers,
                  "Ranks that compute gradients [1; under mpirun or srun all that are neither servers nor generator]")
      ->check(CLI::Range(1, 100000));
  command.add_option("--servers", flags.servers, "Ranks that serve weights, for strategies with servers [1 for those]")
      ->check(CLI::Range(0, 100000));
  command.add_option("--set", flags.settings, "An option of the strategy, as easgd.rho=0.9; may be given again")->allow_extra_args(false);
  command.add_option("--codec", flags.codec,
                     "What updates are sent as: fp32, fp16, bf16, int8, 1bit, threshold, topk:0.01, randomk, dgc, powersgd [fp32]");
  command.add_option("--partition", flags.partition,
                     "Which worker has which samples: shared, queue, none, dataset, labels or dirichlet:ALPHA [shared]");
  command.add_option("--validation", flags.validation,
                     "Fraction of the training samples held out, 0 to 0.5, by which result=best chooses among the workers' models [0]");
  command
      .add_option("--delay", flags.delays,
                  "Before each exchange: all:30ms, one:30ms (worker 1 twice that), gauss:30ms:5ms; may be given again")
      ->allow_extra_args(false);
  command.add_option("--speed", flags.speeds, "RANKS:FACTOR, as 1:0.5: these compute at half speed; may be given again")
      ->allow_extra_args(false);
  command.add_option("--epochs", flags.epochs, "How often every sample is seen [3]")->check(count);
  command.add_option("--batch", flags.batch, "Samples per step and worker [64]")->check(positive);
  command.add_option("--optimizer", flags.optimiser, "sgd, momentum, nesterov, adagrad, adam or lars [momentum]");
  command.add_option("--lr", flags.lr, "Learning rate [0.02]");
  command.add_option("--momentum", flags.momentum, "Of momentum, nesterov and lars [0.9]");
  command.add_option("--weight-decay", flags.weight_decay, "Times the weights, added to the gradient [0]");
  command.add_option("--clip-norm", flags.clip_norm, "Longest gradient; longer ones are scaled down; 0 for no limit [0]");
  command.add_option("--schedule", flags.schedule,
                     "constant, polynomial[:POWER], multi-step:30,60[:GAMMA] or cosine[:FINAL_LR] [constant]");
  command.add_option("--warmup", flags.warmup, "Epochs in which the learning rate rises to its value [0]");
  command.add_option("--batch-warmup", flags.batch_warmup, "EPOCHS:FROM, in which the batch rises from FROM samples to its size [0]");
  command.add_flag("--two-stage", flags.two_stage, "Plain SGD during the warm-up, then the optimizer");
  command.add_option("--on-nan", flags.on_nan, "A loss or gradient that is not finite: stop the run, or skip the batch [stop]");
  command.add_option("--seed", flags.seed, "Seed of first weights, order of batches and all else that is random [1]")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{9'000'000'000'000'000'000U}));
  command.add_option("--fabric", flags.fabric,
                     "threads (real time), sim (virtual time) or mpi (processes) [threads; mpi under mpirun or srun]");
  command.add_option("--evaluate-every", flags.evaluate_every, "Epochs from one evaluation to the next; 0 for the end only [1]")
      ->check(count);
  command
      .add_option("--checkpoint-every", flags.checkpoint_every,
                  "Epochs from one checkpoint, at which all workers meet, to the next; 0 for the end only [1]")
      ->check(count);
  command.add_option("--checkpoint-interval", flags.checkpoint_interval, "Besides, whenever this time has passed; 0 for never [60s]");
  command.add_option("--metrics-every", flags.metrics_every, "Steps from one record of the metrics to the next; 0 for epochs only [100]")
      ->check(count);
  command.add_option("--snapshots", flags.snapshots, "Copies of the weights to keep per epoch, for 'starling landscape' [0]")->check(count);
  command.add_option("--out", flags.out, "The run directory [the next free number in runs/]")->check(given);
  command.add_option("--config", flags.config, "TOML file; flags go on top")->check(given);
  command
      .add_option("--resume", flags.resume,
                  "Go on with the run in this directory; --epochs may make it longer, and some strategies allow other --workers")
      ->check(given);
  command.add_option("--checkpoint", flags.checkpoint, "With --resume: from this checkpoint [latest]")->check(given);
  command.add_option("--trace", flags.trace, "sim: write all events as Chrome/Perfetto JSON to this file")->check(given);
  command.add_flag("--tensorboard", flags.tensorboard, "Write the course of the run to RUN/tensorboard too, as TensorBoard reads it");
  command
      .add_option("--watch", flags.watch,
                  "Serve the report page of the run on 127.0.0.1 while it goes on, on this port or any that is free")
      ->expected(0, 1)
      ->type_name("[PORT]");
  command.add_flag("--json", flags.json, "Print the result as one JSON object, the last line of standard output");
  command.footer(
      "Examples:\n"
      "  starling train                                           LeNet-5 on Fashion-MNIST, into runs/1\n"
      "  starling train --optimizer adam --lr 0.001 --schedule cosine --warmup 1 --epochs 10 --out runs/a\n"
      "  starling train --workers 2 --strategy async --out runs/b  a parameter server and two workers\n"
      "  starling train --workers 64 --strategy ea-wild --fabric sim --speed 0-7:0.5\n"
      "  starling train --resume runs/a --epochs 20               ten epochs more\n"
      "  starling train --config runs/a/config.toml --seed 2      the same again with another seed\n"
      "Exit codes: 0 done, 1 failed, 2 a mistake in flags or files, 3 diverged, 4 the books do not balance, 130 interrupted (--resume goes "
      "on).");
}

void apply(const TrainFlags& flags, const fabric::MpiJob* job, run::RunConfig& config) {
  const auto set = [](const auto& flag, auto& target) {
    if (flag) target = *flag;
  };
  set(flags.model, config.model);
  set(flags.data, config.data);
  set(flags.data_folder, config.data_folder);
  set(flags.partition, config.partition);
  set(flags.validation, config.validation);
  if (flags.strategy && *flags.strategy != config.strategy_name()) config.options.clear();  // They were another strategy's.
  set(flags.strategy, config.strategy);
  set(flags.workers, config.workers);
  if (flags.servers) config.servers = *flags.servers;
  if (job != nullptr) fit_to_job(*job, flags.workers.has_value(), config);  // Before what depends on the number of workers.
  set(flags.codec, config.codec);
  for (const std::string& setting : flags.settings) run::parse_setting(setting, "--set", config);
  if (!flags.delays.empty()) config.fabric.sim.delays.clear();
  for (const std::string& delay : flags.delays) run::parse_delay(delay, "--delay", config);
  if (!flags.speeds.empty()) config.fabric.sim.speeds.clear();
  for (const std::string& speed : flags.speeds) run::parse_speed(speed, "--speed", config);
  set(flags.epochs, config.epochs);
  set(flags.batch, config.schedule.batch);
  set(flags.optimiser, config.optimiser.name);
  set(flags.lr, config.schedule.lr);
  set(flags.momentum, config.optimiser.momentum);
  set(flags.weight_decay, config.optimiser.weight_decay);
  set(flags.clip_norm, config.optimiser.clip_norm);
  if (flags.schedule) run::parse_schedule(*flags.schedule, "--schedule", config.schedule);
  set(flags.warmup, config.schedule.warmup_epochs);
  if (flags.batch_warmup) run::parse_batch_warmup(*flags.batch_warmup, "--batch-warmup", config.schedule);
  if (flags.two_stage) config.schedule.two_stage = true;
  if (flags.on_nan) config.on_nan = run::parse_on_nan(*flags.on_nan, "--on-nan");
  set(flags.seed, config.fabric.sim.seed);
  set(flags.fabric, config.fabric.name);
  set(flags.evaluate_every, config.evaluate_every);
  set(flags.checkpoint_every, config.checkpoint_every);
  if (flags.checkpoint_interval) config.checkpoint_interval = parse_duration(*flags.checkpoint_interval, "--checkpoint-interval");
  set(flags.metrics_every, config.metrics_every);
  set(flags.snapshots, config.snapshots);
  if (!flags.out.empty()) config.out = flags.out;
}

}  // namespace starling::cli
