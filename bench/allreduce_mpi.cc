// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Open MPI's column of the all-reduce table: prints "floats seconds" per line, from rank 0.
#include <mpi.h>

#include "bench/measure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const std::size_t floats : starling::bench::kAllReduceFloats) {
    std::vector<float> values(floats);
    const int repeat = starling::bench::repetitions(floats);
    const auto reduce = [&] { MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(floats), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    for (int i = 0; i < 2; ++i) reduce();
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) reduce();
    if (rank == 0) std::printf("%zu %.9g\n", floats, starling::bench::seconds_since(begin) / repeat);
  }
  MPI_Finalize();
  return 0;
}
