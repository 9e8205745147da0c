// The guardian watches the actors that everything in this process needs. Should one of them die,
// the process is beyond mending from inside: it ends, and what started it starts it again (OTP's
// escalation, with the keeper or systemd on top).
#pragma once

#include <functional>
#include <map>
#include <string>

#include <caf/actor.hpp>
#include <caf/event_based_actor.hpp>

namespace troupe {

struct GuardianOptions {
  std::map<std::string, caf::actor> watched;  // by name
  std::function<void(std::string why)> died;
};

caf::behavior guardian(caf::event_based_actor* self, const GuardianOptions& options);

}  // namespace troupe
