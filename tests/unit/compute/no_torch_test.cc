// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Only in builds without the torch component.
#include <gtest/gtest.h>

#include <string>

#include "starling/base/error.h"
#include "starling/compute/torch/torch_plugin.h"

namespace starling::compute {
namespace {

TEST(TorchPlugin, WithoutItTheErrorSaysHowToGetIt) {
  try {
    load_torch_replica("lenet5", {.input = {1, 28, 28}, .outputs = 10}, 1, 0);
    FAIL() << "there is a plugin";
  } catch (const UserError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("libtorch-dev"), std::string::npos) << message;
    EXPECT_NE(message.find("STARLING_TORCH=ON"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace starling::compute
