// troupe: the command line. One file a command; this one only puts them together.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <system_error>

#include "apps/cli/command.h"

int main(int argc, char** argv) {
  using namespace troupe::cli;
  CLI::App app(
      "Runs a language model on several machines at once, and keeps running when they do not.",
      "troupe");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Print the help of every command and exit");
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  troupe pull smollm2-135m                    fetch the demo model (98 MB)\n"
      "  troupe run smollm2-135m \"Why is the sky blue?\"   one process, no cluster\n"
      "  troupe up --nodes 3 smollm2-135m            three daemons on this machine\n"
      "  troupe generate \"Why is the sky blue?\"      ask the cluster\n"
      "  troupe status --watch\n"
      "  troupe down\n\n"
      "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no cluster or no answer, 130 "
      "interrupted.\n"
      "Files: models in $TROUPE_CACHE (~/.cache/troupe), clusters in $TROUPE_HOME (~/.troupe).");

  int exit_code = kExitOk;
  // In the order in which a newcomer needs them.
  add_run(app, exit_code);
  add_up(app, exit_code);
  add_generate(app, exit_code);
  add_chat(app, exit_code);
  add_status(app, exit_code);
  add_bench(app, exit_code);
  add_drain(app, exit_code);
  add_undrain(app, exit_code);
  add_move(app, exit_code);
  add_standby(app, exit_code);
  add_inject(app, exit_code);
  add_down(app, exit_code);
  add_pull(app, exit_code);
  add_inspect(app, exit_code);
  add_version(app, exit_code);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version requests end here too, with 0.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  } catch (const std::system_error& error) {
    // Standard output is gone or full: there is nobody to tell.
    std::fprintf(stderr, "troupe: %s\n", error.what());
    return kExitFailed;
  }
  return exit_code;
}
