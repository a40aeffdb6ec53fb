// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/mpi_fabric.h"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/notifier.h"
#include "starling/fabric/mpi/call.h"
#include "starling/fabric/mpi/mpi_endpoint.h"
#include "starling/fabric/mpi/speaking.h"
#include "starling/fabric/mpi/start_limit.h"
#include "starling/fabric/mpi/world.h"

namespace starling::fabric {
namespace {

constexpr unsigned kSecondsToAbort = 5;

// What a job knows of its fabric.
struct FabricState {
  bool exists = false;
  bool broken = false;
  std::uint64_t made = 0;
};

class MpiFabric final : public Fabric {
 public:
  // Two of them would use MPI at the same time.
  MpiFabric(const mpi::Members& members, const FabricOptions& options, const MpiOptions& mpi_options, Duration start_timeout,
            std::function<void(const std::string&)> unreachable, FabricState& state)
      : state_(checked(state)), world_(members, options, mpi_options, ++state.made, start_timeout, std::move(unreachable)) {
    state_.exists = true;
  }
  MpiFabric(const MpiFabric&) = delete;
  MpiFabric& operator=(const MpiFabric&) = delete;
  ~MpiFabric() override {
    state_.exists = false;
    if (std::uncaught_exceptions() > 0) state_.broken = true;
  }

  int size() const override { return world_.size(); }
  std::vector<Rank> local_ranks() const override { return {world_.rank()}; }

  RunReport run(const Body& body) override {
    // Once processes have missed each other they do not come together again.
    if (world_.is_broken()) return {.outcomes = {{world_.rank(), RankOutcome::Kind::failed, "the fabric has lost a process before"}}};
    state_.broken = true;  // Until it has ended well.
    world_.begin_run();
    mpi::MpiEndpoint endpoint(world_);
    RunReport report = world_.end_run(run_body(body, endpoint));
    state_.broken = world_.is_broken();
    return report;
  }

 private:
  static FabricState& checked(FabricState& state) {
    STARLING_CHECK(!state.exists, std::string("an MPI job has one fabric at a time"));
    return state;
  }

  FabricState& state_;
  mpi::World world_;
};

// Open MPI reads its settings from the environment when it starts. What the user has set stays.
void set_what_mpi_needs() {
  // Debian's configuration leaves out the one component of Open MPI 4 that can do one-sided operations over TCP.
  ::setenv("OMPI_MCA_osc", "^ucx", 0);
  // With more ranks than cores, MPI gives the core away whenever it finds nothing new, and gets it back when a rank that computes has used
  // up its time. Ranks that wait here sleep instead, and are woken: with a few ranks too many, as a server makes it, that is quicker. Only
  // while a job starts, and in one-sided operations between hosts, do they wait inside MPI; there many ranks on few cores need it.
  const char* here = ::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* all = ::getenv("OMPI_COMM_WORLD_SIZE");
  if (here == nullptr || all == nullptr || std::strcmp(here, all) != 0 || std::atoi(here) > 2 * usable_cores()) return;
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
}

class Job final : public MpiJob {
 public:
  explicit Job(const MpiJobOptions& options) : options_(options) {
    set_what_mpi_needs();
    // MPI cannot be asked who is missing, nor to end the job, before it has started; the launcher ends it with this process.
    const mpi::StartLimit limit(options_.start_timeout + mpi::speaking_delay(options_.speaks_after), [this] {
      say(fmt::format("MPI has not started within {}: another process of the job has not started, hangs or cannot be reached",
                      format_duration(options_.start_timeout)));
      ::_exit(1);
    });
    int level = MPI_THREAD_SINGLE;
    mpi::call("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level));
    if (level < MPI_THREAD_SERIALIZED) {
      throw UserError("this MPI library cannot be used by more than one thread in turn (MPI_THREAD_SERIALIZED): use one that can");
    }
    members_ = mpi::find_members();
  }

  ~Job() override {
    // To leave in good order one would have to wait for processes that do not come.
    if (fabric_.broken) abort(1);
    const mpi::StartLimit limit(options_.start_timeout + mpi::speaking_delay(rank()), [this] {
      end(fmt::format("not all ranks have left the job within {}: a process has ended, hangs or cannot be reached",
                      format_duration(options_.start_timeout)),
          1);
    });
    mpi::release(members_);
    MPI_Finalize();
  }

  Rank rank() const override { return members_.rank; }
  int size() const override { return members_.size; }
  const std::vector<std::string>& hosts() const override { return members_.host_names; }

  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    mpi::call("MPI_Get_library_version", MPI_Get_library_version(text.data(), &length));
    std::string all(text.data(), static_cast<std::size_t>(length));
    std::replace(all.begin(), all.end(), '\t', ' ');  // MPICH's has tabs.
    return all.substr(0, all.find_first_of(",\n"));
  }

  std::unique_ptr<Fabric> make_fabric(const FabricOptions& options, const MpiOptions& mpi_options) override {
    options.validate();
    if (options.ranks != size()) {
      throw UserError(
          fmt::format("the run has {} ranks, but the MPI job has {} processes: start as many as it has", options.ranks, size()));
    }
    for (Rank rank = 0; rank < options.ranks; ++rank) check_not_faster(options, rank, "processes");
    return std::make_unique<MpiFabric>(
        members_, options, mpi_options, options_.start_timeout, [this](const std::string& message) { end(message, 1); }, fabric_);
  }

  [[noreturn]] void fail(const std::string& message, int exit_code) override {
    // So long that the first can end the job, but not so long that the others take this one for late.
    if (rank() != 0) std::this_thread::sleep_for(std::min<Duration>(mpi::kTimeToEnd, options_.start_timeout / 2));
    end(message, exit_code);
  }

 private:
  [[noreturn]] void end(const std::string& message, int exit_code) {
    say(message);
    abort(exit_code);
  }

  void say(const std::string& message) {
    if (!ending_.exchange(true) && options_.say) options_.say(message);
  }

  [[noreturn]] static void abort(int exit_code) {
    // Another process may be gone, and MPI may wait for it even here.
    std::signal(SIGALRM, SIG_DFL);
    ::alarm(kSecondsToAbort);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    ::_exit(exit_code);
  }

  const MpiJobOptions options_;
  mpi::Members members_;
  FabricState fabric_;
  std::atomic<bool> ending_{false};
};

}  // namespace

std::unique_ptr<MpiJob> make_mpi_job(const MpiJobOptions& options) { return std::make_unique<Job>(options); }

}  // namespace starling::fabric
