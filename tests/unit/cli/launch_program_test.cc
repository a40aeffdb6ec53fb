// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The program as one of several processes, as far as that can be seen without an MPI library: what it makes of what launchers say.
#include <gtest/gtest.h>

#include <string>

#include "unit/cli/program.h"

namespace starling::cli {
namespace {

void expect_refused(const std::string& variables, const std::string& arguments, const std::string& part) {
  const Ran ran = run_as(variables, arguments);
  EXPECT_EQ(ran.code, 2) << variables << " " << arguments;
  EXPECT_NE(ran.output.find(part), std::string::npos) << variables << " " << arguments << "\n" << ran.output;
}

constexpr const char* kLaunchers[] = {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4", "PMI_RANK=0 PMI_SIZE=4",
                                      "PMIX_RANK=0 SLURM_STEP_NUM_TASKS=4"};

TEST(LaunchProgram, AFabricOfOneProcessIsRefusedToSeveral) {
  for (const char* launcher : kLaunchers) {
    expect_refused(launcher, "train --fabric threads", "--fabric threads runs in one process, but 4 were started");
  }
}

TEST(LaunchProgram, OnlyTrainingIsWorkForSeveral) {
  for (const char* launcher : kLaunchers) {
    expect_refused(launcher, "strategies", "4 processes were started, but only 'starling train' is work for several");
  }
}

TEST(LaunchProgram, TheFirstSpeaksForAll) {
  for (const char* arguments : {"strategies", "train --fabric sim", "train --stratgy async", "--help"}) {
    const Ran ran = run_as("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4", arguments);
    EXPECT_EQ(ran.output, "") << arguments;
    EXPECT_EQ(ran.code, 0) << arguments;
  }
}

TEST(LaunchProgram, TasksThatMpiCannotJoinAreRefusedWithTheOptionThatHelps) {
  expect_refused("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1", "train", "srun --mpi=pmix");
}

TEST(LaunchProgram, OneProcessOfALauncherMayUseAnyFabric) {
  const Ran ran = run_as("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "strategies");
  EXPECT_EQ(ran.code, 0);
}

}  // namespace
}  // namespace starling::cli
