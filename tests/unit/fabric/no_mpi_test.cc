// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Only in builds without the mpi component.
#include <gtest/gtest.h>

#include <string>

#include "starling/base/error.h"
#include "starling/fabric/mpi/mpi_job.h"

namespace starling::fabric {
namespace {

TEST(MpiPlugin, WithoutItTheErrorSaysHowToGetIt) {
  try {
    join_mpi_job();
    FAIL() << "there is a plugin";
  } catch (const UserError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("libopenmpi-dev"), std::string::npos) << message;
    EXPECT_NE(message.find("STARLING_MPI=ON"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace starling::fabric
