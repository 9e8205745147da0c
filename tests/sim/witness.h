// What an observer outside the system saw: which records and views the ledger's storage really
// took, which frames left which sender. The checkers ask it; the system never does. It keeps the
// first broken promise of a run.
//
// I1: every row that a stage has is one of an undisturbed run. I2 (fencing): a frame is computed
// only by the life it was sent to, as it was sent, and in a committed view that seats sender and
// receiver. I4: nothing is shown before its record. I7: a standby acknowledges, and a stage says it
// holds, no more than it has stored. Also: who refused a stage is not asked again and again.
//
// Not here: I3, I5 and I9 (fake_stage, client), I6 (a journal is not trimmed by watermarks yet),
// I10 (there is no golden vector yet).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/view.h"
#include "transport/control.h"
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
  // A row of an undisturbed run, and one that a stage computed or was sent.
  void expect_row(uint32_t stage, uint32_t position, uint64_t state);
  void row(uint32_t stage, uint32_t position, uint64_t state);
  // The life has so many positions of the sequence.
  void stored(Incarnation life, SequenceId sequence, uint32_t length);
  // What stages say they hold, when they install a view.
  void claims(const ViewInstalled& installed);
  // A node's life could not load a stage; somebody asked for the stage to be there all the same.
  void refused(uint32_t stage, const NodeId& node, uint64_t life);
  void asked_for(uint32_t stage, const NodeId& node);
  void head_started() { refusals_.clear(); }  // another head knows of none

  // Steps of a recovery, for faults in the middle of it: "swap" (a view is in the ledger),
  // "install" (somebody is told), "replay", "feed" (such a frame leaves). Each action once.
  void upon(const std::string& step, std::function<void()> action) {
    upon_[step].push_back(std::move(action));
  }
  void forget_steps() { upon_.clear(); }
  // The newest view has not computed anything yet.
  bool recovering() const { return newest() != nullptr && computed_in_ < newest()->number; }
  void ended(Incarnation life) { held_.erase(life); }
  std::string held_in_seats() const;  // of the newest view, for people; empty: nothing
  const View* newest() const { return views_.empty() ? nullptr : &views_.rbegin()->second; }
  uint64_t views() const { return views_.size(); }
  uint64_t frames_computed() const { return computed_; }
  uint64_t replays() const { return replays_; }
  uint64_t refusals() const { return refused_frames_; }

 private:
  // Sender, receiver, view, edge sequence: what a frame says of itself.
  using Edge = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;
  static Edge edge_of(const FrameHeader& header);
  void reached(const std::string& step);
  uint32_t most_stored(Incarnation life, SequenceId sequence) const;

  std::string first_broken_;
  std::set<RequestId> records_;
  std::map<ViewNumber, View> views_;
  std::map<Edge, uint64_t> sent_;  // its content's digest
  std::map<Incarnation, std::pair<uint32_t, size_t>> held_;
  std::unordered_set<uint64_t> rows_;  // digests of stage, position and state
  std::map<Incarnation, std::unordered_map<uint64_t, uint32_t>> stored_;  // longest, by sequence
  std::map<std::tuple<uint32_t, NodeId, uint64_t>, uint32_t> refusals_;
  std::map<std::string, std::vector<std::function<void()>>> upon_;
  ViewNumber computed_in_;
  uint64_t computed_ = 0, replays_ = 0, refused_frames_ = 0;
};

}  // namespace troupe::sim
