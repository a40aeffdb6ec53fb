// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The program `starling`: reads flags, calls the library, prints. Exit codes: 0 done, 1 a run failed, 2 the user's mistake, 3 a run
// diverged, 4 its books do not balance, 130 a run was interrupted and can be resumed.
#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/cli/commands.h"
#include "starling/cli/launch.h"
#include "starling/version.h"

namespace {

// The command that was given: 'data fetch' rather than 'data'.
CLI::App& innermost(CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  return given.empty() ? app : innermost(*given.front());
}

// "starling data info".
std::string full_name(CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  return given.empty() ? app.get_name() : app.get_name() + " " + full_name(*given.front());
}

// " Did you mean '--ranks'?" for a flag that the command does not have.
std::string flag_hint(CLI::App& app) {
  const CLI::App& command = innermost(app);
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) names.push_back("--" + option->get_single_name());
  for (const std::string& extra : command.remaining()) {
    if (std::string hint = starling::nearest_name_hint(extra, names); !hint.empty()) return hint;
  }
  return "";
}

std::string command_hint(CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return starling::nearest_name_hint(name, names);
}

// What is wrong with a command is the same in all processes, and said by the first. Returns the exit code: that of the others is 0, because
// the launcher might end the first before it has spoken.
int complain(const std::string& message) {
  if (starling::cli::process_rank() > 0) return 0;
  std::fprintf(stderr, "starling: %s\n", message.c_str());
  return 2;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Starling trains one neural network on many workers, synchronously, asynchronously, or anywhere in between: on threads of this\n"
      "machine, in a deterministic simulator, or on a cluster, started by mpirun or srun.",
      "starling");
  app.set_version_flag("--version", std::string("starling ") + starling::kVersion);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.footer("'starling COMMAND --help' explains a command.");
  starling::cli::add_train_command(app);
  starling::cli::add_evaluate_command(app);
  starling::cli::add_compare_command(app);
  starling::cli::add_landscape_command(app);
  starling::cli::add_report_command(app);
  starling::cli::add_strategies_command(app);
  starling::cli::add_collective_command(app);
  starling::cli::add_converge_command(app);
  starling::cli::add_data_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ExtrasError& error) {
    return complain(fmt::format("{}.{}\nTry 'starling --help' or 'starling COMMAND --help'.", error.what(), flag_hint(app)));
  } catch (const CLI::RequiredError& error) {
    CLI::App& command = innermost(app);
    const std::vector<std::string> unknown = command.remaining();
    const bool has_commands = !command.get_subcommands([](const CLI::App*) { return true; }).empty();
    if (unknown.empty() || !has_commands) return complain(fmt::format("{}\nTry '{} --help'.", error.what(), full_name(app)));
    return complain(fmt::format("there is no command '{}'.{}\nTry 'starling --help'.", unknown[0], command_hint(command, unknown[0])));
  } catch (const CLI::ParseError& error) {
    return complain(fmt::format("{}\nTry '{} --help'.", error.what(), full_name(app)));
  }
  return 0;
}

}  // namespace

namespace {

// A closed standard stream would give its number to the first file that is opened, and what is printed would end in it.
void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

// Of several processes that a launcher started, the first prints for all; the others print only what goes wrong in them alone.
void be_quiet_beside_the_first() {
  if (starling::cli::process_rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) std::exit(1);
}

int guarded(int argc, char** argv) {
  if (starling::cli::process_count() > 1 && (argc < 2 || std::string(argv[1]) != "train")) {
    return complain(
        fmt::format("{} processes were started, but only 'starling train' is work for several: start one", starling::cli::process_count()));
  }
  try {
    return run(argc, argv);
  } catch (const starling::cli::ExitCode& code) {
    return code.value;
  } catch (const starling::UserError& error) {
    return complain(error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "starling: %s\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  be_quiet_beside_the_first();
  const int code = guarded(argc, argv);
  // Scripts rely on what is printed: output that was lost is a failure.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == 0) {
    std::fprintf(stderr, "starling: cannot write to standard output\n");
    return 1;
  }
  return code;
}
