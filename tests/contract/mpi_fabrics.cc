// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The contract suite on the MPI fabric: the program is started as N processes, and every test runs on N ranks. "mpi_one_sided" is the same
// fabric with windows as they are between hosts.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "contract/fabrics.h"
#include "starling/collective/collective.h"
#include "starling/fabric/mpi/mpi_fabric.h"

namespace starling::fabric {
namespace {

std::unique_ptr<MpiJob> job;

// What fails in a process is told by that process, with its rank; all else only by the first.
class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "[rank %d] %s.%s: %s:%d: %s\n", job->rank(), test == nullptr ? "" : test->test_suite_name(),
                 test == nullptr ? "" : test->name(), result.file_name() == nullptr ? "" : result.file_name(), result.line_number(),
                 result.message());
  }
};

// MPI's own all-reduce adds in an order of its own, which the suites do not allow: here all sums are exact. Ranks that are done early leave
// the others alone with what they have done together.
TEST(MpiLibrary, mpi_all_reduce_of_whole_numbers) {
  const int ranks = job->size();
  const std::unique_ptr<Fabric> fabric = job->make_fabric({.ranks = ranks}, {.library_all_reduce = true});
  for (int run = 0; run < 2; ++run) {
    expect_success(*fabric, [&](Endpoint& endpoint) -> Status {
      for (const std::size_t size : {0U, 1U, 1000U, 1000000U, 17U}) {
        std::vector<float> values(size);
        for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i % 100 * static_cast<std::size_t>(endpoint.rank() + 1));
        STARLING_TRY(collective::all_reduce(endpoint, Group::world(ranks), values));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < size; ++i) {
          if (values[i] != static_cast<float>(i % 100) * static_cast<float>(ranks * (ranks + 1) / 2)) ++wrong;
        }
        EXPECT_EQ(wrong, 0U) << "of " << size;
      }
      return {};
    });
  }
}

}  // namespace

std::vector<std::string> fabric_names() { return {"mpi", "mpi_one_sided"}; }
bool has_one_process() { return false; }
std::vector<int> rank_counts() { return {job->size()}; }

std::unique_ptr<Fabric> make_fabric(const std::string& name, const FabricOptions& options) {
  return job->make_fabric(options, {.one_sided_windows = name == "mpi_one_sided"});
}

}  // namespace starling::fabric

int main(int argc, char** argv) {
  using namespace starling::fabric;
  job = make_mpi_job(
      {.say = [](const std::string& message) { std::fprintf(stderr, "rank %d: %s\n", job ? job->rank() : -1, message.c_str()); }});
  testing::InitGoogleTest(&argc, argv);
  if (job->rank() != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  const int result = RUN_ALL_TESTS();
  job.reset();
  return result;
}
