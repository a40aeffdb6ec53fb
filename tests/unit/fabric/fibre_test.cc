// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/fibre.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace starling::fabric::sim {
namespace {

constexpr std::size_t kStack = std::size_t{256} << 10;

TEST(Fibre, RunsInTurns) {
  std::string order;
  Fibre* inside = nullptr;
  Fibre fibre(kStack, [&] {
    order += 'b';
    inside->yield();
    order += 'd';
  });
  inside = &fibre;
  order += 'a';
  fibre.resume();
  order += 'c';
  EXPECT_FALSE(fibre.ended());
  fibre.resume();
  EXPECT_TRUE(fibre.ended());
  EXPECT_EQ(order, "abcd");
}

// Exceptions being handled belong to the fibre, not to the thread: two fibres that each sit in a catch block, and end them crosswise.
TEST(Fibre, ExceptionsOfDifferentFibresDoNotMix) {
  std::vector<std::string> caught;
  std::vector<Fibre*> fibres(2);
  const auto body = [&](std::size_t me) {
    try {
      try {
        throw std::runtime_error("first of " + std::to_string(me));
      } catch (const std::exception&) {
        fibres[me]->yield();
        throw;  // Must be this fibre's own.
      }
    } catch (const std::exception& error) {
      fibres[me]->yield();
      caught.emplace_back(error.what());
    }
  };
  Fibre a(kStack, [&] { body(0); });
  Fibre b(kStack, [&] { body(1); });
  fibres = {&a, &b};
  for (int i = 0; i < 3; ++i) {
    a.resume();
    EXPECT_EQ(std::current_exception(), nullptr);
    b.resume();
  }
  EXPECT_EQ(caught, (std::vector<std::string>{"first of 0", "first of 1"}));
}

TEST(Fibre, AThousandAtOnce) {
  std::vector<std::unique_ptr<Fibre>> fibres;
  int sum = 0;
  for (int i = 0; i < 1000; ++i) {
    fibres.push_back(std::make_unique<Fibre>(kStack, [&sum, &fibres, i] {
      fibres[static_cast<std::size_t>(i)]->yield();
      sum += i;
    }));
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& fibre : fibres) fibre->resume();
  }
  EXPECT_EQ(sum, 499500);
}

}  // namespace
}  // namespace starling::fabric::sim
