// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Training with a strategy on the ranks of a fabric.
//
//   Trainer trainer(config, replicas, dataset, {.directory = &directory, .observer = &observer, .stop = [] { return interrupted; }});
//   if (checkpoint) trainer.restore(*checkpoint);
//   trainer.run();
//   trainer.result();
//
// A run is made of stretches. In a stretch workers compute and exchange; at its end they drain everything that is under way, meet, look at
// the model, write a checkpoint, and begin the next stretch from what the checkpoint holds, exactly as a new process would. So going on is
// the same as resuming: in the simulator a run that was stopped and resumed has, bit for bit, the weights and updates of one that never
// was. Stretches end at epochs (RunConfig::checkpoint_every), after some time (checkpoint_interval), and when the run is interrupted.
//
// The ranks may live in several processes, one in each (TrainerOptions::fabric). Every process then makes the same trainer, with the same
// configuration and data, and calls the same functions; the body of its own rank runs in it. The process of rank 0 has the observer and the
// directory, and writes for all. A rank that is lost then ends the run everywhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "starling/collective/meeting.h"
#include "starling/compute/replica.h"
#include "starling/data/dataset.h"
#include "starling/data/worker_batches.h"
#include "starling/fabric/fabric.h"
#include "starling/fabric/metered_endpoint.h"
#include "starling/ledger/ledger.h"
#include "starling/optim/schedule.h"
#include "starling/run/batch_stream.h"
#include "starling/run/checkpoint.h"
#include "starling/run/evaluation.h"
#include "starling/run/halting.h"
#include "starling/run/metrics.h"
#include "starling/run/run_config.h"
#include "starling/run/run_directory.h"
#include "starling/run/snapshots.h"
#include "starling/strategy/registry.h"

namespace starling::run {

// Where a run stands, for people to see; over all workers.
struct Progress {
  std::uint64_t step = 0;  // The most that a worker has taken.
  double epoch = 0;        // As a fraction; the mean over the workers.
  std::uint64_t epochs = 0;
  std::uint64_t samples = 0;
  std::uint64_t skipped = 0;      // Batches.
  double samples_per_second = 0;  // Since the run was started or resumed.
  double seconds = 0;             // Since the run was started or resumed, all included.
  double seconds_left = 0;
  std::optional<double> train_loss{};  // Mean of this epoch so far; at the end of an epoch, of that epoch.
  std::optional<double> test_loss{};   // Of the last evaluation.
  std::optional<double> test_accuracy{};
};

// Hears of the course of a run, on the thread of one rank or another, never on two at once. Must not throw.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void progressed(const Progress&) {}  // A few times a second.
  virtual void epoch_ended(const Progress&) {}
  virtual void recorded(const MetricsRecord&) {}  // Has been written to the metrics.
  virtual void checkpoint_written(const std::string& path) { (void)path; }
  virtual void noted(const std::string& message) { (void)message; }  // Something unusual that is no failure.
};

enum class Ending { finished, interrupted, diverged };

struct TrainResult {
  Ending ending = Ending::finished;
  std::string reason{};  // "at step 12 the loss is nan", where it diverged.
  RunState state{};
  double epochs = 0;                   // Done, as a fraction.
  std::optional<double> train_loss{};  // Of the last epoch, complete or not.
  std::string weights_sha256{};
  std::string checkpoint{};         // The path of the last one written or read; empty without a run directory.
  ledger::Balance balance{};        // The books of the whole run, what was done before it was resumed included.
  bool back_to_checkpoint = false;  // Interrupted where no checkpoint could be written: what came after the last is to be done again.
  std::vector<int> lost{};          // Workers that were lost, where the others finished without them.
  strategy::Roles roles{};
  // What the result says of the test set, by label and then by answer; empty where it was not tested, or answers are numbers.
  std::vector<std::vector<std::uint64_t>> confusion{};
  std::vector<std::string> class_names{};
};

// What a trainer works with, besides model and data. All of it is optional, and outlives the trainer.
struct TrainerOptions {
  RunDirectory* directory = nullptr;  // Without one nothing is written. Only in the process of rank 0; likewise the observer.
  TrainObserver* observer = nullptr;
  std::function<bool()> stop{};                  // Asked after every step, by one worker at a time; true ends the run with a checkpoint.
  const strategy::Registry* registry = nullptr;  // Without one, the built-in strategies.
  std::ostream* trace = nullptr;                 // In the simulator: where all events are written, if anywhere.
  // Where a strategy trains parts of the model (Description::trains_parts), and replicas are these: one more per worker, of the whole
  // model, to look at the result. The first has the first weights.
  std::vector<compute::Replica*> viewers{};
  // The ranks to run on, in place of those that the configuration names. As many as the run needs, or a UserError says so.
  fabric::Fabric* fabric = nullptr;
};

// Not thread-safe.
class Trainer {
 public:
  // One replica per worker, all with the first weights of the run, or of the layout of the worker's part; likewise the viewers. Those of
  // workers in other processes are nullptr, but a process without a worker has one of worker 0, or its viewer, to know the model by. Throws
  // UserError if configuration, model, strategy and data do not fit.
  Trainer(const RunConfig& config, const std::vector<compute::Replica*>& replicas, const data::Dataset& dataset, TrainerOptions options);
  ~Trainer();

  // As TrainerOptions::directory does, for a directory that is made only when it is known that everything fits. Before restore() and run().
  void write_into(RunDirectory& directory);

  // Goes on from a checkpoint. Throws UserError if it is of another model, other data, or another configuration; only the number of workers
  // may be another, where the strategy allows it (other_workers.h).
  void restore(const Checkpoint& given);

  // Trains to the end of the configured epochs, or until stopped or diverged. Throws UserError if a file cannot be written, and
  // std::runtime_error, with what each rank has to say, if a rank failed.
  void run();

  // In a process without rank 0: the ending with its reason, where the run stands as a whole, and the roles.
  const TrainResult& result() const { return result_; }
  // The result's weights, buffers included.
  std::span<const float> model() const { return model_; }

 private:
  struct Worker;
  struct Spread;
  struct Counters;
  struct Saved;
  struct Task;

  void hold_out(std::vector<std::vector<std::uint32_t>>& parts);

  void make_workers(const std::vector<compute::Replica*>& replicas, const std::vector<compute::Replica*>& viewers);
  bool is_here(fabric::Rank rank) const;  // In this process.
  bool writes_files() const { return is_here(0); }
  bool has_stream(const std::string& partition) const;
  void prepare_files();

  // The bodies of the ranks.
  Status work(fabric::Endpoint& raw);
  Status serve(fabric::Endpoint& raw);

  // One stretch of one worker: true if it ended so that all meet, false if the run is given up.
  Result<bool> train(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker);
  // Nothing when the stretch ends for this worker.
  Result<std::optional<Task>> next_task(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker);
  Result<std::optional<strategy::Assignment>> next_assignment(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy,
                                                              Worker& worker);
  Result<bool> may_begin(fabric::MeteredEndpoint& endpoint, Worker& worker, std::uint64_t step);
  Result<bool> step(fabric::MeteredEndpoint& endpoint, strategy::Strategy& strategy, Worker& worker, const Task& task);
  void open_stream();
  bool stream_may_go_on(const data::BatchOrder::Position& position);
  bool stretch_goes_on_at(const data::BatchOrder::Position& position) const;
  bool skip(Worker& worker, const std::string& what);
  Status look_around(fabric::MeteredEndpoint& endpoint, Worker& worker);
  Status end_epoch_on_the_side(fabric::Endpoint& endpoint, strategy::Strategy& strategy, Worker& worker);
  Status take_snapshot_if_due(fabric::Endpoint& endpoint, strategy::Strategy& strategy, Worker& worker);
  void publish(Worker& worker) const;
  double fraction(const data::BatchOrder::Position& position) const;  // In epochs.

  void count_bytes(fabric::MeteredEndpoint& endpoint, std::uint64_t before);
  Status meet(collective::Meeting& meeting, fabric::Endpoint& endpoint, Worker* worker);
  void evaluate_own_part(fabric::Endpoint& endpoint, Worker& worker);
  void validate_own_model(fabric::Endpoint& endpoint, Worker& worker);
  Status begin_next_stretch(fabric::Endpoint& endpoint);

  // Where the ranks live in several processes (trainer_spread.cc).
  Status run_spread(fabric::Endpoint& endpoint);
  void make_spread(const fabric::Fabric& fabric);
  Status check_alike(fabric::Endpoint& endpoint);
  std::string difference_from(std::span<const std::byte> identity) const;
  void make_spread_halting(fabric::Endpoint& endpoint);
  Status settle(fabric::Endpoint& endpoint, Status status);
  void take_given_up(const std::string& reason);
  bool heard_given_up();
  Status look_at_others(fabric::Endpoint& endpoint);
  void answer_if_asked();
  void look_around_serving();
  std::vector<std::byte> report_of(fabric::Rank rank);
  void take_report(fabric::Rank rank, std::span<const std::byte> bytes);
  Result<std::optional<strategy::Assignment>> next_of_all(fabric::MeteredEndpoint& endpoint, Worker& worker);
  collective::Parcels arrival_parcels(fabric::Rank rank);
  collective::Parcels conclusion_parcels(fabric::Rank rank);
  std::vector<std::byte> arrival(fabric::Rank rank);
  void take_arrival(fabric::Rank rank, std::span<const std::byte> bytes);
  std::vector<std::byte> decision();
  void take_decision(fabric::Rank rank, std::span<const std::byte> bytes);
  std::vector<std::byte> closing_words(fabric::Rank rank);
  void take_closing_words(fabric::Rank rank, std::span<const std::byte> bytes);
  std::vector<std::byte> conclusion();
  void take_conclusion(std::span<const std::byte> bytes);
  void forget_what_was_told();
  void gather_given_up();
  std::vector<std::byte> last_words(fabric::Rank rank);
  void take_last_words(fabric::Rank rank, std::span<const std::byte> bytes);
  data::BatchOrder::Position stream_of_all();
  void deal_numbers_anew();

  // By one rank, while the others wait.
  void all_have_arrived(fabric::Endpoint& endpoint);
  bool is_to_end() const;
  void assemble_model(Worker& first);
  Worker* choose_parameters(Worker& first);
  void conclude(fabric::Endpoint& endpoint);
  void end_epoch(fabric::Endpoint& endpoint, Worker& worker, const std::optional<compute::Evaluation>& evaluation);
  void gather_state();
  void write_checkpoint(Time now, bool planned = true);
  std::span<const float> weights_apart(const Worker& worker) const;

  void diverge(std::uint64_t step, const std::string& what);
  void judge(const fabric::RunReport& report);
  void count_answers();
  void finish();
  std::unique_ptr<strategy::Strategy> make_strategy(fabric::Endpoint& endpoint);
  std::vector<compute::Replica*> viewers_of(const std::vector<compute::Replica*>& replicas) const;
  static void save(strategy::Strategy& strategy, Saved& saved);
  void load(strategy::Strategy& strategy, const Saved& saved) const;
  bool is_over(const data::BatchOrder::Position& position) const { return position.epoch >= config_.epochs; }
  ledger::Balance balance_given_up() const;
  bool checkpoint_is_due(std::uint64_t epoch) const;
  bool stretch_ends_at(std::uint64_t epoch) const;
  bool evaluation_is_due(std::uint64_t epoch) const;
  data::BatchOrder::Position furthest() const;
  MetricsRecord make_record(const char* kind, fabric::Endpoint& endpoint, Worker& worker);
  void write(const MetricsRecord& record);
  std::pair<std::uint64_t, std::uint64_t> applications_and_staleness();  // So far, as all ranks show them.
  void add_exchanges(const ledger::Account& own, MetricsRecord& record);
  double seconds_at(Time now) const;
  Progress progress(Time now) const;
  double epochs_done() const;
  std::optional<double> running_loss() const;
  fabric::Patience patience(fabric::Endpoint& endpoint);

  RunConfig config_;
  const data::Dataset& dataset_;
  TrainerOptions options_;
  strategy::Registry registry_;
  const strategy::Description& description_;
  strategy::Settings settings_;
  strategy::Roles roles_;
  bool lockstep_;
  bool exchanges_;                           // Not sequential.
  std::unique_ptr<Spread> spread_;           // Where ranks live in several processes.
  const compute::Replica* whole_ = nullptr;  // One of the whole model.
  optim::Schedule schedule_;
  std::vector<std::uint64_t> part_samples_;
  data::Samples validation_;             // Held out; perhaps none.
  std::size_t samples_in_epoch_ = 1;     // As data::WorkerBatches says.
  double samples_per_epoch_ = 1;         // Of all workers.
  bool from_stream_ = false;             // Workers have no order of batches of their own.
  std::optional<BatchStream> stream_;    // Then, where batches are taken from it.
  std::uint64_t stretch_begins_at_ = 0;  // Batches of the stream that came before.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::atomic<std::uint64_t>> bytes_sent_;  // By rank, as others see them while it runs.
  std::vector<Saved> saved_;                            // By rank: what strategies want to find again.
  bool has_saved_ = false;
  std::optional<ledger::Ledger> ledger_;
  std::optional<CheckpointStore> store_;
  std::optional<MetricsLog> metrics_;
  std::optional<SnapshotStore> snapshots_;
  std::uint64_t next_snapshot_ = 1;        // After the first weights.
  std::vector<std::int32_t> predictions_;  // Of the result on the test set, as of the last meeting that looked at it.
  std::string config_text_;
  std::string data_text_;
  std::vector<float> model_;
  RunState state_;
  TrainResult result_;
  fabric::RunReport report_;

  // Written by one rank while the others wait, or under the mutex.
  std::unique_ptr<Halting> halting_;
  std::atomic<std::uint64_t> activity_{0};  // Grows as long as anybody steps or looks at the model.
  std::mutex mutex_;                        // Guards what follows, while ranks run.
  bool interrupted_ = false;
  bool diverged_ = false;
  std::atomic<bool> given_up_{false};  // No more meetings: the run ends where it is.
  bool over_ = false;
  bool epoch_ends_now_ = false;  // At this meeting; likewise below.
  bool evaluates_now_ = false;
  bool writes_now_ = false;
  bool closes_now_ = false;  // For a checkpoint, or for good: everybody's state and books are wanted.
  bool concluded_ = false;
  std::optional<std::uint64_t> recorded_epoch_;     // The last whose end was recorded.
  std::optional<std::uint64_t> checkpointed_step_;  // The step of the last checkpoint written or read.
  Time begin_ = Time::zero();                       // When this process began with the run.
  Time clock_ = Time::zero();                       // When training went on after the last pause.
  Time last_report_ = Time::zero();
  Time last_checkpoint_ = Time::zero();
  Time last_seen_ = Time::zero();            // The latest time of a step or a meeting.
  std::uint64_t recorded_applications_ = 0;  // As of the last record; likewise below.
  std::uint64_t recorded_staleness_ = 0;
  double earlier_total_seconds_ = 0;  // Of the run before it was resumed; likewise below.
  double earlier_seconds_ = 0;
  double earlier_epochs_ = 0;
};

}  // namespace starling::run
