#include "tests/model/search.h"

#include <fmt/format.h>

#include <deque>
#include <optional>

#include "base/check.h"
#include "base/time.h"
#include "tests/model/world.h"

namespace troupe::model {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

// Digests of the states that were seen, and their numbers. With n states two have one digest with a
// chance of n * n / 2^65: for ten million 3 in a million.
class Visited {
 public:
  Visited() : slots_(1 << 16) {}

  // The state's number, and whether it is new.
  std::pair<uint32_t, bool> insert(uint64_t digest) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place_of(digest)];
    if (slot.number != kNobody) return {slot.number, false};
    slot = {digest, count_};
    return {count_++, true};
  }
  uint32_t count() const { return count_; }

 private:
  struct Slot {
    uint64_t digest = 0;
    uint32_t number = kNobody;
  };
  size_t place_of(uint64_t digest) const {
    size_t place = digest & (slots_.size() - 1);
    while (slots_[place].number != kNobody && slots_[place].digest != digest)
      place = (place + 1) & (slots_.size() - 1);
    return place;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.number != kNobody) slots_[place_of(slot.digest)] = slot;
  }

  std::vector<Slot> slots_;
  uint32_t count_ = 0;
};

class Search {
 public:
  explicit Search(const SearchOptions& options)
      : options_(options),
        truth_(options.bounds.stages, options.bounds.requests, options.bounds.prompt,
               options.bounds.tokens) {}

  SearchResult run() {
    const Instant begin = steady_now();
    try {
      result_.complete = explore(begin);
      if (result_.complete) check_all_can_end();
    } catch (const Violation& violation) {
      result_.violation = violation.what();
      result_.trace = trace_to(worst_, worst_event_);
    }
    result_.states = visited_.count();
    result_.seconds = to_seconds(steady_now() - begin);
    return result_;
  }

 private:
  struct Origin {
    uint32_t parent = kNobody;
    Event event;
  };

  World first() const { return World(options_.bounds, truth_, options_.from_nothing); }

  struct Open {
    uint32_t number, depth;
    World world;
  };

  bool explore(Instant begin) {
    std::deque<Open> open;
    open.push_back({0, 0, first()});
    visited_.insert(open.front().world.digest());
    origins_.push_back({});
    came_by_.push_back(0);
    while (!open.empty()) {
      if (visited_.count() > options_.states_max) return false;
      if (to_seconds(steady_now() - begin) > options_.seconds_max) return false;
      const Open state = std::move(open.front());
      open.pop_front();
      result_.depth = state.depth;
      expand(state, open);
    }
    result_.ends = ends_.size();
    return true;
  }

  void expand(const Open& state, std::deque<Open>& open) {
    worst_ = state.number;
    worst_event_.reset();
    const std::vector<Event> steps = state.world.steps(options_.all_orders);
    if (steps.empty()) {
      const std::string left = state.world.left_behind();
      if (!left.empty()) throw Violation("at the end: " + left);
      ends_.push_back(state.number);
    }
    for (const Event& step : steps) {
      const auto [number, is_new] = follow(state, step, open);
      if (step.kind == EventKind::kTime && number == state.number)
        throw Violation("nothing happens any more, and not all is done");
      steps_.push_back({state.number, number});
      if (step.kind != EventKind::kTime) came_by_[number] |= state.world.of(step);
    }
    // A failure that does not touch whoever took a step that leads here comes to the same before
    // that step, and was tried there, or before another step in front of it.
    for (const Event& failure : state.world.failures())
      if (options_.all_orders || (came_by_[state.number] & ~state.world.of(failure)) == 0)
        follow(state, failure, open);
  }

  std::pair<uint32_t, bool> follow(const Open& state, const Event& event, std::deque<Open>& open) {
    worst_event_ = event;
    World next = state.world;
    next.apply(event);
    ++result_.steps;
    const auto found = visited_.insert(next.digest());
    if (!found.second) return found;
    ++result_.by_failures_left[next.failures_left()];
    origins_.push_back({state.number, event});
    came_by_.push_back(0);
    open.push_back({found.first, state.depth + 1, std::move(next)});
    return found;
  }

  // From every state an end can be reached without a further failure: backwards from the ends.
  void check_all_can_end() {
    std::vector<uint32_t> first(visited_.count() + 1), before(steps_.size());
    for (const auto& [from, to] : steps_) ++first[to + 1];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<uint32_t> fill(first.begin(), first.end() - 1);
    for (const auto& [from, to] : steps_) before[fill[to]++] = from;
    std::vector<bool> can_end(visited_.count());
    std::vector<uint32_t> todo = ends_;
    for (const uint32_t end : ends_) can_end[end] = true;
    while (!todo.empty()) {
      const uint32_t state = todo.back();
      todo.pop_back();
      for (uint32_t i = first[state]; i < first[state + 1]; ++i) {
        if (can_end[before[i]]) continue;
        can_end[before[i]] = true;
        todo.push_back(before[i]);
      }
    }
    for (uint32_t state = 0; state < visited_.count(); ++state) {
      if (can_end[state]) continue;
      worst_ = state;
      worst_event_.reset();
      throw Violation("from here no end can be reached without a further failure");
    }
  }

  // The shortest way there, run again.
  std::vector<std::string> trace_to(uint32_t state, const std::optional<Event>& last) const {
    std::vector<Event> events;
    if (last) events.push_back(*last);
    for (; origins_[state].parent != kNobody; state = origins_[state].parent)
      events.insert(events.begin(), origins_[state].event);
    std::vector<std::string> lines;
    World world = first();
    for (const Event& event : events) {
      lines.push_back(world.describe(event));
      try {
        world.apply(event);
      } catch (const Violation&) {
        break;
      }
    }
    return lines;
  }

  const SearchOptions options_;
  const Truth truth_;
  SearchResult result_;
  Visited visited_;
  std::vector<Origin> origins_;                       // [state]
  std::vector<World::Processes> came_by_;             // [state] who took the steps that led there
  std::vector<std::pair<uint32_t, uint32_t>> steps_;  // those without a failure
  std::vector<uint32_t> ends_;
  uint32_t worst_ = 0;
  std::optional<Event> worst_event_;
};

}  // namespace

SearchResult search(const SearchOptions& options) {
  return Search(options).run();
}

}  // namespace troupe::model
