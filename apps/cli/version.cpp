// troupe version: what this is and what it was built with.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "base/version.h"

namespace troupe::cli {

void add_version(CLI::App& app, int& exit_code) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("version", "Print the version");
  command->add_flag("--json", *json, "As JSON");
  command->callback([json, &exit_code] {
    const std::string compiler = fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
    if (*json) {
      const nlohmann::ordered_json document = {{"version", kVersion}, {"compiler", compiler}};
      fmt::print("{}\n", document.dump());
    } else {
      fmt::print("troupe {} (built with {})\n", kVersion, compiler);
    }
    exit_code = kExitOk;
  });
}

}  // namespace troupe::cli
