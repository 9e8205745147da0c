#include "tests/sim/node_clock.h"

#include <vector>

namespace troupe::sim {
namespace {

using Clock = caf::detail::simple_actor_clock;

caf::actor_id owner_of(const Clock::delayed_event& event) {
  switch (event.subtype) {
    case Clock::ordinary_timeout_type:
      return static_cast<const Clock::ordinary_timeout&>(event).self->id();
    case Clock::multi_timeout_type:
      return static_cast<const Clock::multi_timeout&>(event).self->id();
    case Clock::request_timeout_type:
      return static_cast<const Clock::request_timeout&>(event).self->id();
    case Clock::actor_msg_type:
      return static_cast<const Clock::actor_msg&>(event).receiver->id();
    default:
      return 0;
  }
}

}  // namespace

void move_timers(caf::detail::test_actor_clock& clock, caf::actor_id actor, Duration by) {
  // The clock is not const; CAF only offers no other way in. A node that is taken out and put back
  // stays where it is in memory, so what CAF remembers of it holds.
  auto& schedule = const_cast<Clock::schedule_map&>(clock.schedule());
  std::vector<Clock::schedule_map::iterator> timers;
  for (auto entry = schedule.begin(); entry != schedule.end(); ++entry)
    if (owner_of(*entry->second) == actor) timers.push_back(entry);
  for (const auto& timer : timers) {
    auto taken = schedule.extract(timer);
    taken.key() += by;
    taken.mapped()->due += by;
    schedule.insert(std::move(taken));
  }
}

NodeClock::NodeClock(caf::detail::test_actor_clock& clock, caf::actor_id actor, Duration ahead,
                     Duration& shown)
    : clock_(clock), actor_(actor), ahead_(ahead), shown_(shown) {
  clock_.current_time += ahead_;
  shown_ += ahead_;
  if (actor_ != 0) move_timers(clock_, actor_, ahead_);
}

NodeClock::~NodeClock() {
  clock_.current_time -= ahead_;
  shown_ -= ahead_;
  if (actor_ != 0) move_timers(clock_, actor_, -ahead_);
}

}  // namespace troupe::sim
