// How long a journal must reach back (I6). A stage's journal is there for the stages behind it: for
// the next one, and, when that is lost together with its standby, for those behind that one, whose
// input the next one computes anew. So a row may go when the standby of *every* stage downstream
// holds its position: each stage tells the one before it the least of its own standby's watermark
// and what it was told by the one behind it. A stage without a standby holds everything back.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/logic/journal.h"
#include "actors/logic/standby_feed.h"
#include "base/ids.h"

namespace troupe {

class Watermarks {
 public:
  // What the stage behind this one tells: standbys from it on hold the positions below.
  void on_downstream(SequenceId sequence, uint32_t position);
  // What the stage before this one should be told: sequences that moved on by a chunk of its
  // journal at least, at most `most` of them. `own` is what this stage's standby holds; `last`:
  // there is no stage behind this one.
  std::vector<FeedLength> news(const std::map<SequenceId, uint32_t>& own, bool last, size_t most);
  void forget(SequenceId sequence);
  // With every view: what was told was told about other standbys.
  void clear();

 private:
  std::map<SequenceId, uint32_t> downstream_, told_;
};

}  // namespace troupe
