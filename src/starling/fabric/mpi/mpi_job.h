// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes of an MPI job, one rank each, on one host or many.
//
//   const std::unique_ptr<MpiJob> job = join_mpi_job();                   // Once per process; throws UserError where MPI is not built in.
//   const std::unique_ptr<Fabric> fabric = job->make_fabric({.ranks = job->size()});
//   RunReport report = fabric->run(body);                                 // The body of this process's rank.
//   if (!report.ok()) job->fail(report.summary(), 1);
//
// Two ways to have it: a program that links starling::mpi has the job in itself (mpi_fabric.h); for all others it is a plugin,
// lib/starling/starling_mpi.so, that is opened when a job is joined, so that a program that runs on one machine loads no MPI.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"
#include "starling/fabric/mpi/options.h"

namespace starling::fabric {

struct MpiJobOptions {
  // How people are told why the job is ended: by fail(), or because a process is no longer heard of. Called on any thread.
  std::function<void(const std::string&)> say{};
  // So many others have the time to speak before this one: before MPI has started, nobody knows its rank but the launcher's environment.
  int speaks_after = 0;
  // How long processes wait for each other while the job starts, where they make a fabric or begin a run, and where they leave the job.
  Duration start_timeout = std::chrono::minutes(5);
};

// This process as a member of an MPI job. There is one at most in a process, used by its main thread; when it is destroyed the process
// leaves the job, which waits for the others to do the same.
class MpiJob {
 public:
  MpiJob() = default;
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  virtual ~MpiJob() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // The name of the host of every rank.
  virtual const std::vector<std::string>& hosts() const = 0;

  // "Open MPI 4.1.4", for people.
  virtual std::string library() const = 0;

  // All processes make it together, with the same options; options.ranks is the size of the job. The fabric's local_ranks() is this
  // process's rank alone, but its reports tell how every rank ended. One at a time; it ends before the job. A process that is no longer
  // heard of ends the job: options.timeout says after how long.
  virtual std::unique_ptr<Fabric> make_fabric(const FabricOptions& options, const MpiOptions& mpi_options = {}) = 0;

  // Tells people, and ends every process of the job. Where several fail for one reason, the first speaks for all: the others leave it the
  // time to do so.
  [[noreturn]] virtual void fail(const std::string& message, int exit_code) = 0;
};

// Joins the job this process was started in by mpirun or srun; a process that was started alone is a job of one. Throws UserError, with how
// to get it, if there is no plugin near the program or the library, or it cannot be loaded.
std::unique_ptr<MpiJob> join_mpi_job(const MpiJobOptions& options = {});

}  // namespace starling::fabric
