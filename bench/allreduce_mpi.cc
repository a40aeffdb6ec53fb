// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The columns of the all-reduce table that are MPI processes: prints "floats plain starling" in seconds per line, from rank 0. Plain is
// MPI_Allreduce in place, the other Starling's MPI fabric; both in the same processes, one after the other.
#include <mpi.h>

#include "bench/measure.h"
#include "starling/collective/collective.h"
#include "starling/fabric/mpi/mpi_fabric.h"

namespace starling::bench {
namespace {

double measure_plain(std::size_t floats) {
  std::vector<float> values(floats);
  const int repeat = repetitions(floats);
  const auto reduce = [&] { MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(floats), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
  for (int i = 0; i < 2; ++i) reduce();
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) reduce();
  return seconds_since(begin) / repeat;
}

double measure_starling(fabric::MpiJob& job, std::size_t floats) {
  fabric::FabricOptions options;
  options.ranks = job.size();
  const int repeat = repetitions(floats);
  double seconds = 0;
  const fabric::RunReport report = job.make_fabric(options)->run([&](fabric::Endpoint& endpoint) -> Status {
    const fabric::Group world = fabric::Group::world(endpoint.size());
    std::vector<float> values(floats);
    for (int i = 0; i < 2; ++i) STARLING_TRY(collective::all_reduce(endpoint, world, values));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) STARLING_TRY(collective::all_reduce(endpoint, world, values));
    seconds = seconds_since(begin) / repeat;
    return {};
  });
  if (!report.ok()) std::fprintf(stderr, "%s", report.summary().c_str());
  return seconds;
}

}  // namespace
}  // namespace starling::bench

int main() {
  using namespace starling;
  const auto job = fabric::make_mpi_job();
  for (const std::size_t floats : bench::kAllReduceFloats) {
    const double plain = bench::measure_plain(floats);
    const double ours = bench::measure_starling(*job, floats);
    if (job->rank() == 0) std::printf("%zu %.9g %.9g\n", floats, plain, ours);
  }
}
