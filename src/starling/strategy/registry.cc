// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "starling/base/error.h"
#include "starling/strategy/methods.h"
#include "starling/strategy/run_optimiser.h"

namespace starling::strategy {
namespace {

void check_roles(const Description& description, const Roles& roles) {
  const std::string& name = description.name;
  if (roles.workers < 1) throw UserError(fmt::format("the number of workers is {}, but there must be at least 1", roles.workers));
  if (description.one_worker_only && roles.workers > 1) {
    throw UserError(fmt::format("strategy {} is for one worker, but there are {}; choose another (starling strategies lists them)", name,
                                roles.workers));
  }
  if (description.needs_servers && roles.servers < 1) throw UserError(fmt::format("strategy {} needs at least 1 server", name));
  if (description.needs_generator != (roles.generators == 1)) {
    throw UserError(fmt::format("strategy {} needs {} generator", name, description.needs_generator ? "a" : "no"));
  }
  if (!description.needs_servers && roles.servers > 0) {
    throw UserError(fmt::format("strategy {} has no servers, but --servers is {}: leave it out", name, roles.servers));
  }
}

void check_codec(const Description& description, const std::string& codec, const optim::OptimiserOptions& optimiser) {
  // Any layout will do to see whether the specification is right.
  params::Layout layout;
  layout.add("any", {2, 2});
  (void)codec::make_codec(codec, {.layout = layout});
  if (codec == "fp32") return;
  const std::string& name = description.name;
  if (description.sends == Sends::nothing) throw UserError(fmt::format("strategy {} sends nothing, so --codec {} has no use", name, codec));
  if (description.sends == Sends::additions) {
    throw UserError(fmt::format("strategy {} adds to shared memory, where nobody could decode what --codec {} makes of it", name, codec));
  }
  if (description.sends == Sends::weights) {
    throw UserError(
        fmt::format("strategy {} sends weights, not gradients or differences: what --codec {} leaves out would be missing from the model",
                    name, codec));
  }
  if (!codec_has_momentum(codec)) return;
  if (description.sends == Sends::deltas) {
    throw UserError(fmt::format(
        "--codec {} corrects the momentum of gradients, but strategy {} sends differences of weights, which have it already; try "
        "topk",
        codec, name));
  }
  const std::vector<std::string> fitting{"sgd", "momentum", "nesterov"};
  if (std::find(fitting.begin(), fitting.end(), optimiser.name) == fitting.end()) {
    throw UserError(fmt::format("--codec {} has the momentum in the codec, which fits --optimizer sgd, momentum or nesterov, not {}", codec,
                                optimiser.name));
  }
}

}  // namespace

std::vector<int> place_ranks(Places places, const Roles& roles) {
  std::vector<int> ranks;
  if (places == Places::workers || places == Places::addressed) {
    for (int worker = 0; worker < roles.workers; ++worker) ranks.push_back(worker);
  }
  if (places == Places::servers) {
    for (int server = 0; server < roles.servers; ++server) ranks.push_back(roles.server(server));
  }
  if (places == Places::centre) ranks.push_back(0);
  return ranks;
}

Option result_option() {
  return Option::choice("result", "average", {"average", "best", "rank0"},
                        "the model of the run: the mean of all workers', the best by the validation samples, or worker 0's");
}

bool in_lockstep(const Description& description, const Settings& settings) {
  return description.lockstep || (description.lockstep_when && description.lockstep_when(settings));
}

Registry Registry::built_in() {
  Registry registry;
  registry.add(describe_sequential());
  registry.add(describe_sync());
  registry.add(describe_local_sgd());
  registry.add(describe_fedavg());
  registry.add(describe_ssp());
  registry.add(describe_async());
  registry.add(describe_downpour());
  registry.add(describe_agn());
  registry.add(describe_dc_asgd());
  registry.add(describe_easgd());
  registry.add(describe_ea_msgd());
  registry.add(describe_ea_wild());
  registry.add(describe_hogwild());
  registry.add(describe_dogwild());
  registry.add(describe_all_to_all());
  registry.add(describe_neighbours());
  registry.add(describe_gosgd());
  registry.add(describe_ad_psgd());
  registry.add(describe_ist());
  return registry;
}

void Registry::add(Description description) {
  STARLING_CHECK(!description.name.empty() && description.make, std::string("a strategy needs a name and a way to make it"));
  (void)Settings(description.name, description.options);  // Checks that the defaults fit.
  const auto same =
      std::find_if(descriptions_.begin(), descriptions_.end(), [&](const Description& one) { return one.name == description.name; });
  if (same == descriptions_.end()) {
    descriptions_.push_back(std::move(description));
  } else {
    *same = std::move(description);
  }
}

const Description& Registry::find(const std::string& name) const {
  std::vector<std::string> names;
  for (const Description& description : descriptions_) {
    if (description.name == name) return description;
    names.push_back(description.name);
  }
  throw UserError(fmt::format("there is no strategy '{}'; there are {}.{}", name, fmt::join(names, ", "), nearest_name_hint(name, names)));
}

void check_use(const Description& description, const Settings& settings, const Roles& roles, const std::string& codec,
               const optim::OptimiserOptions& optimiser) {
  check_roles(description, roles);
  check_codec(description, codec, optimiser);
  const bool on_servers = description.needs_servers && description.sends == Sends::gradients;
  if (on_servers && roles.servers > 1 && (optimiser.name == "lars" || optimiser.clip_norm > 0)) {
    throw UserError(fmt::format("{} needs the norm of whole vectors, but {} servers have a part each: use --servers 1",
                                optimiser.name == "lars" ? "--optimizer lars" : "--clip-norm", roles.servers));
  }
  if (description.check) description.check(settings, roles);
}

}  // namespace starling::strategy
