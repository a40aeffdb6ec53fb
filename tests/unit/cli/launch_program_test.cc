// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The program as one of several processes, as far as that can be seen without an MPI library: what it makes of what launchers say.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
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
  expect_refused("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0", "train", "srun --mpi=pmix");
  const Ran other = run_as("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1", "train");
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.output, "") << "the first has said it";
}

// One that cannot join, on a machine where something is missing, is waited for by all others: it says so itself.
TEST(LaunchProgram, AProcessThatCannotJoinSpeaksForItself) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("starling_launch_test_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  fs::copy_file(STARLING_PROGRAM, folder / "starling");
  const Ran ran = run_program_as((folder / "starling").string(), "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4", "train");
  fs::remove_all(folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.output.find("starling: rank 2: the fabric 'mpi' needs the mpi component"), 0U) << ran.output;
}

// A configuration that a cluster has left.
TEST(LaunchProgram, WithoutALauncherAFileOfAClusterRunsOnThreads) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("starling_launch_config_test_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "a.toml") << "[strategy]\nname = \"sync\"\nworkers = 2\n[fabric]\nname = \"mpi\"\n";
  const Ran ran = run("train --config " + (folder / "a.toml").string() + " --out " + (folder / "run").string() +
                      " --model 'dense 3' --data blobs:classes=3,samples=300 --epochs 1");
  fs::remove_all(folder);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("fabric threads"), std::string::npos) << ran.output;
}

TEST(LaunchProgram, OneProcessOfALauncherMayUseAnyFabric) {
  const Ran ran = run_as("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "strategies");
  EXPECT_EQ(ran.code, 0);
}

}  // namespace
}  // namespace starling::cli
