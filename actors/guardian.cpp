#include "actors/guardian.h"

#include <caf/behavior.hpp>
#include <caf/exit_reason.hpp>

#include "actors/messages.h"

namespace troupe {

caf::behavior guardian(caf::event_based_actor* self, const GuardianOptions& options) {
  std::map<caf::actor_addr, std::string> names;
  for (const auto& [name, actor] : options.watched) {
    names.emplace(actor.address(), name);
    self->monitor(actor);
  }
  self->set_down_handler([self, names, died = options.died](caf::down_msg& down) {
    if (down.reason == caf::exit_reason::user_shutdown) return;
    const auto found = names.find(down.source);
    died((found == names.end() ? std::string("an actor") : found->second) +
         " died: " + self->system().render(down.reason));
  });
  return {[](const Tick&) {}};
}

}  // namespace troupe
