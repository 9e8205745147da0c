// Breadth first through all states of the model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/model/bounds.h"

namespace troupe::model {

struct SearchOptions {
  Bounds bounds;
  bool all_orders = false;    // also those that are known to come to the same
  bool from_nothing = false;  // placing and loading, too; else from the first view that serves
  uint64_t states_max = 50'000'000;
  double seconds_max = 600;
};

struct SearchResult {
  uint64_t states = 0, steps = 0, ends = 0, depth = 0;
  double seconds = 0;
  std::map<uint32_t, uint64_t> by_failures_left;  // states
  bool complete = false;                          // every reachable state was looked at
  std::string violation;                          // empty if there was none
  std::vector<std::string> trace;                 // the steps that lead to it
};

SearchResult search(const SearchOptions& options);

}  // namespace troupe::model
