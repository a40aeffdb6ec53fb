// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "starling/base/error.h"

namespace starling::strategy {
namespace {

struct Use {
  std::string strategy{};
  std::map<std::string, std::string> options{};
  Roles roles{.workers = 4};
  std::string codec = "fp32";
  optim::OptimiserOptions optimiser{};
};

// What is said when this use is refused; "" if it is not.
std::string refusal(const Use& use) {
  const Registry registry = Registry::built_in();
  const Description& description = registry.find(use.strategy);
  Settings settings(description.name, description.options);
  for (const auto& [name, value] : use.options) settings.set(name, value);
  try {
    check_use(description, settings, use.roles, use.codec, use.optimiser);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Registry, HasTheSpectrumInItsOrder) {
  std::vector<std::string> names;
  const Registry registry = Registry::built_in();
  for (const Description& description : registry.all()) names.push_back(description.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"sequential", "sync", "local-sgd", "fedavg", "ssp", "async", "downpour", "agn", "dc-asgd", "easgd",
                                      "ea-msgd", "ea-wild", "hogwild", "dogwild", "all-to-all", "neighbours", "gosgd", "ad-psgd", "ist"}));
}

TEST(Registry, EveryDescriptionIsComplete) {
  const Registry registry = Registry::built_in();
  for (const Description& description : registry.all()) {
    SCOPED_TRACE(description.name);
    EXPECT_FALSE(description.summary.empty() || description.rule.empty() || description.traffic.empty() || description.paper.empty());
    EXPECT_EQ(description.summary.find('\n'), std::string::npos) << "a summary is one line";
    EXPECT_NE(description.summary.back(), '.');
    std::set<std::string> names;
    for (const Option& option : description.options) {
      EXPECT_TRUE(names.insert(option.name).second) << option.name << " is there twice";
      EXPECT_FALSE(option.help.empty() || option.help.ends_with('.')) << option.name;
    }
    EXPECT_EQ(description.places == Places::servers, description.needs_servers);
  }
}

TEST(Registry, AnUnknownNameIsRefusedWithTheNearest) {
  const Registry registry = Registry::built_in();
  const auto refused = [&](const std::string& name) -> std::string {
    try {
      (void)registry.find(name);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(has(refused("eawild"), "there is no strategy 'eawild'; there are sequential, sync, ")) << refused("eawild");
  EXPECT_TRUE(has(refused("eawild"), "Did you mean 'ea-wild'?"));
  EXPECT_TRUE(has(refused("dcasgd"), "Did you mean 'dc-asgd'?"));
  EXPECT_FALSE(has(refused("murmuration"), "Did you mean"));
}

TEST(Registry, OneOfTheSameNameIsReplacedAndAnotherAdded) {
  Registry registry = Registry::built_in();
  const std::size_t count = registry.all().size();
  Description own = registry.find("sync");
  own.summary = "ours";
  registry.add(own);
  EXPECT_EQ(registry.all().size(), count);
  EXPECT_EQ(registry.find("sync").summary, "ours");
  own.name = "own";
  registry.add(own);
  EXPECT_EQ(registry.all().size(), count + 1);
  EXPECT_EQ(registry.all().back().name, "own");
  EXPECT_THROW(registry.add({.name = "cannot be made"}), BrokenInvariant);
  own.options = {Option::number("rho", 2, 0, 1, "too large")};
  EXPECT_THROW(registry.add(own), BrokenInvariant);
}

TEST(Registry, PlacesAreTheRanksWhereWeightsAre) {
  const Roles roles{.workers = 3, .servers = 2};
  EXPECT_EQ(place_ranks(Places::workers, roles), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(place_ranks(Places::servers, roles), (std::vector<int>{3, 4}));
  EXPECT_EQ(place_ranks(Places::centre, roles), std::vector<int>{0});
}

TEST(Registry, LockstepMayDependOnTheSettings) {
  const Registry registry = Registry::built_in();
  const auto in_step = [&](const std::string& name, const std::map<std::string, std::string>& options = {}) {
    const Description& description = registry.find(name);
    Settings settings(description.name, description.options);
    for (const auto& [option, value] : options) settings.set(option, value);
    return in_lockstep(description, settings);
  };
  for (const char* name : {"sequential", "sync", "local-sgd", "fedavg"}) EXPECT_TRUE(in_step(name)) << name;
  for (const char* name : {"ssp", "async", "downpour", "agn", "dc-asgd", "easgd", "ea-msgd", "ea-wild", "hogwild"})
    EXPECT_FALSE(in_step(name)) << name;
  EXPECT_TRUE(in_step("ea-wild", {{"group", "2"}}));
}

TEST(CheckUse, RolesMustFit) {
  EXPECT_EQ(refusal({.strategy = "sync"}), "");
  EXPECT_EQ(refusal({.strategy = "sequential", .roles = {.workers = 1}}), "");
  EXPECT_EQ(refusal({.strategy = "async", .roles = {.workers = 4, .servers = 3}}), "");
  EXPECT_TRUE(has(refusal({.strategy = "sync", .roles = {.workers = 0}}), "the number of workers is 0, but there must be at least 1"));
  EXPECT_TRUE(has(refusal({.strategy = "sequential"}), "strategy sequential is for one worker, but there are 4"));
  EXPECT_TRUE(
      has(refusal({.strategy = "sync", .roles = {.workers = 4, .servers = 1}}), "strategy sync has no servers, but --servers is 1"));
  for (const char* name : {"ssp", "async", "downpour", "agn", "dc-asgd", "easgd", "ea-msgd"}) {
    EXPECT_TRUE(has(refusal({.strategy = name}), "needs at least 1 server")) << name;
  }
}

TEST(CheckUse, GroupsMustDivideTheWorkers) {
  EXPECT_EQ(refusal({.strategy = "ea-wild", .options = {{"group", "3"}}, .roles = {.workers = 6}}), "");
  EXPECT_EQ(refusal({.strategy = "ea-wild", .options = {{"group", "4"}}, .roles = {.workers = 6}}),
            "ea-wild.group is 4, but 6 workers can only form groups of 1, 2, 3, 6");
}

TEST(CheckUse, ACodecMustFitWhatIsSent) {
  const Roles served{.workers = 4, .servers = 1};
  for (const char* codec : {"fp32", "fp16", "bf16", "int8", "1bit", "threshold", "topk:0.1", "randomk", "powersgd", "dgc"}) {
    EXPECT_EQ(refusal({.strategy = "sync", .codec = codec}), "") << codec;
    EXPECT_EQ(refusal({.strategy = "async", .roles = served, .codec = codec}), "") << codec;
  }
  EXPECT_EQ(refusal({.strategy = "ssp", .roles = served, .codec = "topk"}), "");
  EXPECT_TRUE(
      has(refusal({.strategy = "sequential", .roles = {.workers = 1}, .codec = "fp16"}), "sends nothing, so --codec fp16 has no use"));
  for (const char* name : {"easgd", "ea-msgd"}) {
    EXPECT_TRUE(has(refusal({.strategy = name, .roles = served, .codec = "topk"}), "sends weights, not gradients or differences")) << name;
  }
  EXPECT_TRUE(has(refusal({.strategy = "ea-wild", .codec = "int8"}), "sends weights, not gradients or differences"));
  EXPECT_TRUE(has(refusal({.strategy = "hogwild", .codec = "int8"}), "adds to shared memory, where nobody could decode what --codec int8"));
  EXPECT_TRUE(has(refusal({.strategy = "local-sgd", .codec = "dgc"}), "differences of weights, which have it already; try topk"));
  EXPECT_TRUE(has(refusal({.strategy = "downpour", .roles = served, .codec = "dgc:0.01"}), "differences of weights"));
  EXPECT_TRUE(has(refusal({.strategy = "sync", .codec = "dgc", .optimiser = {.name = "adam"}}), "sgd, momentum or nesterov, not adam"));
  EXPECT_TRUE(has(refusal({.strategy = "sync", .codec = "topc"}), "Did you mean 'topk'?"))
      << refusal({.strategy = "sync", .codec = "topc"});
  EXPECT_NE(refusal({.strategy = "sync", .codec = "topk:2"}), "");
}

TEST(CheckUse, NormsOfWholeVectorsNeedOneServer) {
  const Roles one{.workers = 4, .servers = 1};
  const Roles two{.workers = 4, .servers = 2};
  EXPECT_EQ(refusal({.strategy = "async", .roles = one, .optimiser = {.name = "lars"}}), "");
  EXPECT_TRUE(has(refusal({.strategy = "async", .roles = two, .optimiser = {.name = "lars"}}), "--optimizer lars needs the norm"));
  EXPECT_TRUE(has(refusal({.strategy = "async", .roles = two, .optimiser = {.clip_norm = 1}}), "--clip-norm needs the norm"));
}

}  // namespace
}  // namespace starling::strategy
