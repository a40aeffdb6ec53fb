// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "starling/cli/commands.h"
#include "starling/codec/codec.h"
#include "starling/strategy/registry.h"

namespace starling::cli {
namespace {

// Every line of the text with spaces in front.
std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "  " + line + "\n";
  return result;
}

const char* to_string(strategy::Sends sends) {
  switch (sends) {
    case strategy::Sends::nothing:
      return "none has a use: it sends nothing";
    case strategy::Sends::gradients:
      return "any; it sends gradients";
    case strategy::Sends::deltas:
      return "any but dgc; it sends differences of weights";
    case strategy::Sends::additions:
      return "fp32 only: it adds to shared memory";
    case strategy::Sends::weights:
      break;
  }
  return "fp32 only: it sends weights";
}

void list(const strategy::Registry& registry) {
  std::size_t width = 0;
  for (const strategy::Description& description : registry.all()) width = std::max(width, description.name.size());
  for (const strategy::Description& description : registry.all()) fmt::print("{:{}}  {}\n", description.name, width, description.summary);
}

std::string loss_of_a_worker(const strategy::Description& description) {
  if (!description.survives_lost_worker) return "ends the run with an error that names it";
  if (description.needs_generator) return "the others go on; the loss of the generator ends the run";
  if (description.places != strategy::Places::centre) return "the others go on";
  const char* const waiting = description.lockstep_when ? "; where workers wait for each other, it ends the run" : "";
  return fmt::format("the others go on, unless it is worker 0, which has the centre{}", waiting);
}

void explain(const strategy::Description& description) {
  fmt::print("{}: {}\n\nrule\n{}\ntraffic\n{}\n", description.name, description.summary, indented(description.rule),
             indented(description.traffic));
  fmt::print("servers   {}\n", description.needs_servers     ? "at least one (--servers, default 1)"
                               : description.needs_generator ? "none; one rank more, the generator, deals the batches out"
                                                             : "none");
  fmt::print("codecs    {}\n", to_string(description.sends));
  fmt::print("loss of a worker  {}\n\n", loss_of_a_worker(description));

  if (description.options.empty()) {
    fmt::print("It has no options.\n\n");
  } else {
    fmt::print("options (--set {}.NAME=VALUE)\n", description.name);
    for (const strategy::Option& option : description.options) {
      fmt::print("  {} = {}\n      {}\n      {}\n", option.name, option.standard, option.help, option.range());
    }
    fmt::print("\n");
  }
  fmt::print("from      {}\n", description.paper);
}

void list_codecs() {
  std::size_t width = 0;
  for (const codec::CodecDescription& description : codec::codec_descriptions()) width = std::max(width, description.form.size());
  for (const codec::CodecDescription& description : codec::codec_descriptions()) {
    fmt::print("{:{}}  {}\n", description.form, width, description.summary);
  }
}

}  // namespace

void add_strategies_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("strategies", "List the strategies, or explain one: its rule, options and traffic");
  auto name = std::make_shared<std::string>();
  auto codecs = std::make_shared<bool>(false);
  command->add_option("name", *name, "The strategy to explain");
  command->add_flag("--codecs", *codecs, "List the codecs instead");
  command->footer(
      "Examples:\n  starling strategies\n  starling strategies easgd\n  starling train --strategy easgd --workers 4 --set easgd.tau=8");
  command->callback([name, codecs] {
    const strategy::Registry registry = strategy::Registry::built_in();
    if (*codecs) {
      list_codecs();
    } else if (name->empty()) {
      list(registry);
    } else {
      explain(registry.find(*name));
    }
  });
}

}  // namespace starling::cli
