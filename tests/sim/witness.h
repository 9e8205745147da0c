// What an observer outside the system saw: which records and views the ledger's storage really
// took, which frames left which sender. The checkers ask it; the system never does. It keeps the
// first broken promise of a run.
//
// I2 (fencing), here: a frame is computed only by the life it was sent to, as it was sent, and in a
// committed view that seats sender and receiver. I4: nothing is shown before its record.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/view.h"
#include "transport/frame.h"

namespace troupe::sim {

class Witness {
 public:
  void broken(const std::string& promise) {
    if (first_broken_.empty()) first_broken_ = promise;
  }
  const std::string& first_broken() const { return first_broken_; }

  // The ledger's storage answered: it has it.
  void recorded(const RequestId& id) { records_.insert(id); }
  bool has_record(const RequestId& id) const { return records_.contains(id); }
  void committed(const View& view);
  // Somebody was told, by the ledger's answer or by an InstallView, that this view is in force.
  void told(const View& view);

  // A transport took it; stage or standby `life` computes or stores it.
  void sent(const Frame& frame);
  void computes(Incarnation life, uint32_t stage, const Frame& frame);
  // How many sequences a stage's life holds; gone when it ends.
  void holds(Incarnation life, uint32_t stage, size_t sequences) {
    held_[life] = {stage, sequences};
  }
  void ended(Incarnation life) { held_.erase(life); }
  std::string held_in_seats() const;  // of the newest view, for people; empty: nothing
  const View* newest() const { return views_.empty() ? nullptr : &views_.rbegin()->second; }
  uint64_t views() const { return views_.size(); }
  uint64_t frames_computed() const { return computed_; }

 private:
  // Sender, receiver, view, edge sequence: what a frame says of itself.
  using Edge = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;
  static Edge edge_of(const FrameHeader& header);

  std::string first_broken_;
  std::set<RequestId> records_;
  std::map<ViewNumber, View> views_;
  std::map<Edge, uint64_t> sent_;  // its content's digest
  std::map<Incarnation, std::pair<uint32_t, size_t>> held_;
  uint64_t computed_ = 0;
};

}  // namespace troupe::sim
