// Continuous batching: which rows run next, and where their keys and values live. The batcher alone
// decides batch order and KV block tables; stages execute, they never decide. Pure: no clock, no
// I/O; time comes in as an argument.
//
// The idea. Every running sequence has a token log (prompt and what was generated). A sequence is
// *fed* up to some position; what is not fed yet is prefill work, and when only the newest token is
// left it is decode work. After a failure some stages lack part of what was fed: start_view() hears
// what each holds, and only the gaps are executed again (resume.h), the shortest first, before the
// sequence goes on behind its last known token. Exact kernels make the continuation byte-identical
// (numerics.md).
//
// Under the `input` standby policy a token is shown only after the standbys executed everything it
// depends on, too, and the same came out (on_checked): what one execution alone computed is shown
// to nobody. Until then it is in the log and the sequence goes on behind it, at most unchecked_max
// rows. Where two executions disagree the sequence is computed again from what was shown, under
// another id, so that no stage takes anything of the old one for its own (disputes.h).
//
// Bounds: at most in_flight_max micro-batches are out; never two with the same sequence; at most
// rows_max rows each; the queue holds at most queue_max requests; KV blocks come from one
// BlockPool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/logic/block_pool.h"
#include "actors/logic/disputes.h"
#include "actors/logic/resume.h"
#include "actors/logic/token_log.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/sampling.h"
#include "base/time.h"

namespace troupe {

struct BatchingLimits {
  uint32_t stages = 1;              // K
  uint32_t in_flight_max = 2;       // micro-batches; K + 1 keeps every stage busy
  uint32_t rows_max = 256;          // of a micro-batch: decode rows and prefill rows together
  uint32_t prefill_chunk_max = 64;  // rows of one sequence's prefill in one micro-batch
  uint32_t running_max = 256;       // sequences that hold KV blocks
  uint32_t queue_max = 1024;        // requests that wait for room
  uint32_t context_max = 2048;      // positions of a sequence
  uint32_t kv_blocks = 0;           // of 64 positions
  uint32_t unchecked_max = 256;     // rows of a sequence that wait for standbys to check them
  Duration reissue_after =
      30s;  // a micro-batch unanswered for so long is sent again (I5 makes that safe)
};

struct BatchRequest {
  RequestId id;
  std::vector<uint32_t> prompt;     // 1 to context_max - 1 tokens
  std::vector<uint32_t> generated;  // known already (a resumed request): fed, not sampled again
  uint32_t max_tokens = 0;          // of generated; 1 or more
  SamplingParameters sampling;
  std::vector<uint32_t>
      stop_tokens;  // generation ends with any of these; it is reported, not shown
};

struct PlannedSegment {
  SequenceId sequence;
  uint32_t position = 0;
  std::vector<uint32_t> tokens;  // [rows]
  std::vector<uint32_t> blocks;  // covers [0, position + rows)
  bool sample = false;
  SamplingParameters sampling;
};

struct PlannedBatch {
  MicroBatchId id;
  std::vector<PlannedSegment> segments;
  std::vector<SequenceId> released;  // finished since the last micro-batch: stages forget them
  // Of a replay: its rows enter from the journal of stage entry - 1 (0: they are tokens, as always)
  // and end at stage `exit`, which answers without tokens.
  uint32_t entry = 0;
  uint32_t exit = kToTheEnd;
};

struct BatchEvent {
  RequestId id;
  uint32_t index = 0;  // of the token among the generated ones, from 0: the client's cursor
  std::optional<uint32_t>
      token;  // absent in a bare end; with kStop the stop token, which is not shown
  uint64_t logits_digest = 0;
  std::optional<FinishReason> finish;  // present in a request's last event
  std::string failure;                 // with kFailed: the cause, for the client
};

struct SampledRow {
  SequenceId sequence;
  uint32_t position = 0;  // the sampled token's own: one past its segment's last row
  uint32_t token = 0;
  uint64_t logits_digest = 0;
};

// A standby executed these rows, too: the same came out of [position, position + outcomes), and of
// everything before; of the row behind them something else if `disputed`.
struct CheckedRows {
  SequenceId sequence;
  uint32_t position = 0;
  std::vector<uint64_t> outcomes;
  bool disputed = false;
  uint64_t seat_outcome = 0, standby_outcome = 0;
  uint32_t end() const { return position + static_cast<uint32_t>(outcomes.size()); }
};
// A stage and the standby that checks it.
struct CheckedStage {
  uint32_t stage = 0;
  Incarnation seat, standby;
};

struct BatchingFigures {
  uint32_t queued = 0, running = 0, in_flight = 0;
  uint32_t kv_blocks_used = 0, kv_blocks = 0;
  uint64_t tokens_generated = 0, prompt_tokens = 0, rows_replayed = 0;
  uint64_t micro_batches = 0, reissued = 0, divergences = 0, requests_done = 0;
  uint64_t rows_checked = 0, disputes = 0;
};

class Batching {
 public:
  explicit Batching(BatchingLimits limits);

  // `max_tokens` beyond the context's end is shortened to it (admission.h). Errors:
  // kInvalidArgument (empty prompt, prompt not shorter than the context, nothing left to generate,
  // more KV than the pool ever has), kAlreadyExists (an id that is queued or running),
  // kResourceExhausted (the queue is full).
  Result<void> add(BatchRequest request);
  // Takes effect at once: queued or running, its end is the returned event; blocks of a sequence
  // that is in flight are freed when its micro-batch came back. Nothing for an unknown id.
  std::optional<BatchEvent> cancel(const RequestId& id);

  // A stage was lost: what is in flight may have been the cause. A request in flight at
  // `kLossesMax` losses of one stage, without a new token or another stage's loss between, is
  // quarantined: it fails, with `why`, and takes no more lives with it. From the second loss on it
  // runs alone, so that its neighbours do not share its fate.
  std::vector<BatchEvent> on_loss(uint32_t stage, const std::string& why);
  // A new view: nothing is in flight any more. `held` by stage is what the stages hold; empty:
  // nothing, so every running sequence is fed again from its log. `checkers` by stage is who checks
  // it (no incarnation: nobody); empty: nobody checks any. What was waiting for one that is gone is
  // shown: the returned events. Until the first call nothing is planned.
  std::vector<BatchEvent> start_view(std::span<const StageHoldings> held = {},
                                     std::vector<Incarnation> checkers = {});
  // No view at the moment: plan nothing until start_view().
  void stop_view();

  // The next micro-batch, or nothing (not enough work, or in_flight_max reached). Call until it
  // returns nothing. Decode rows first, oldest first, spread so that `stages` micro-batches share
  // the running sequences; then prefill chunks up to the row budget. A micro-batch may be bare
  // releases only when nothing else is in flight.
  std::optional<PlannedBatch> next(Instant now);

  // A micro-batch came back. Unknown ids (an older view, a repeat) change nothing. A sampled token
  // that is already in the log and equal is a repeat; one that differs is a DIVERGENCE: that
  // request fails, both tokens are in its text.
  std::vector<BatchEvent> on_sampled(MicroBatchId id, std::span<const SampledRow> rows);
  // A stage refused it (a gap, a bad shape, no number came out). Its sequences are fed again from
  // the start, at most `kRefusalsMax` times each without a new token between; then they fail with
  // `why`. From the second time on a sequence runs alone, so that one that no stage can run takes
  // no others with it, and under another id, so that nothing stages hold of it is believed.
  std::vector<BatchEvent> on_refused(MicroBatchId id, const std::string& why);
  // What a standby says of rows that its stage executed; of sequences that are unknown, or known
  // under another id by now, it says nothing. A request that is in dispute `kDisputesMax` times, or
  // about something that was shown (before its stage had a standby), fails.
  std::vector<BatchEvent> on_checked(const CheckedStage& by, std::span<const CheckedRows> rows);
  // Who turned out to be wrong, since the last call.
  std::vector<WrongResult> take_wrong() { return std::exchange(wrong_, {}); }
  // Micro-batches unanswered since before now - reissue_after, to be sent again as they were (same
  // id).
  std::vector<PlannedBatch> overdue(Instant now);

  // The tokens shown so far of a queued or running request; empty optional if unknown.
  std::optional<std::vector<uint32_t>> generated(const RequestId& id) const;
  std::vector<RequestId> requests() const;  // queued and running
  BatchingFigures figures() const;

  static constexpr uint32_t kRefusalsMax = 3;
  static constexpr uint32_t kLossesMax = 3;
  static constexpr uint32_t kDisputesMax = 8;
  static constexpr uint32_t kReleasedMax = 1024;  // of one micro-batch; more wait for the next

 private:
  // Arrival number: age. Smaller is older, and older goes first everywhere.
  using Order = uint64_t;

  // What the standby of one stage said of a sequence. One that came later than the sequence does
  // not hold its tokens back until it has caught up.
  struct Check {
    uint32_t until = 0;
    bool holds_back = false;
    // Rows that two executions agreed on, under this id of the sequence or an earlier one.
    uint32_t agreed_from = 0, agreed_until = 0;
    void agree(uint32_t from, uint32_t end) {
      if (from > agreed_until) agreed_from = from;
      agreed_until = std::max(agreed_until, end);
    }
    bool agreed(uint32_t row) const { return row >= agreed_from && row < agreed_until; }
  };

  struct Sequence {
    RequestId request;
    TokenLog log;
    uint32_t length_max = 0;  // of the log: prompt and generated
    SamplingParameters sampling;
    std::vector<uint32_t> stop_tokens;
    SequenceId id;  // a new one each time it gets to run: stages must not take older KV for its own
    std::vector<uint32_t> blocks;  // while running
    uint32_t fed = 0;              // positions whose micro-batch came back
    uint32_t fed_most = 0;         // positions ever sent, to tell replayed rows
    uint32_t refusals = 0;         // since the last new token
    uint32_t losses = 0;           // in a row, of lost_stage, while it was in flight
    uint32_t lost_stage = 0;
    std::optional<Gap> gap;  // to be filled before anything else is fed
    bool in_flight = false;
    bool preempted = false;  // goes back to the queue as soon as it is not in flight any more
    bool ended = false;      // cancelled while in flight: only its blocks are still here
    uint32_t shown = 0;      // of the generated tokens
    std::optional<FinishReason> done;  // it ends so as soon as all of them are shown
    std::vector<Check> checks;         // [stage]; empty: nobody checks any
    uint32_t disputes = 0;
    bool in_doubt = false;  // what is in flight counts for nothing; then it is computed again

    // The last token of one that is done is never fed.
    uint32_t unfed() const { return log.size() - (done ? 1 : 0) - fed; }
    // A prompt of one token is prefill work like any other.
    bool decodes() const { return unfed() == 1 && fed > 0 && !gap; }
    bool is_suspect() const { return refusals >= 2 || losses >= 2; }
    bool may_run() const { return !in_flight && !gap && !is_suspect() && unfed() > 0; }
    uint32_t checked() const;  // positions below may be shown, and the one that follows
  };

  struct InFlight {
    PlannedBatch batch;
    std::vector<Order> members;  // [segment]
    bool decodes = false;        // it has decode rows
    Instant sent;
  };

  // batching.cpp: what happens to a sequence
  static void resume(Sequence& sequence, std::span<const StageHoldings> held);
  Result<uint32_t> length_granted(const BatchRequest& request) const;
  void take_answer(Order order, const PlannedSegment& segment, const SampledRow* row,
                   std::vector<BatchEvent>& events);
  void take_token(Sequence& sequence, const SampledRow& row, std::vector<BatchEvent>& events);
  void take_refusal(Sequence& sequence, const std::string& why, std::vector<BatchEvent>& events);
  void landed(
      Order order);  // after its micro-batch came back: carries out what had to wait for that
  BatchEvent end(Sequence& sequence, FinishReason reason, std::string failure = {});
  void stop_running(Order order);
  void requeue(Order order);
  void forget(Order order);

  // batching_checks.cpp: what may be shown
  void expect_checks(Sequence& sequence) const;
  void change_checkers(std::vector<Incarnation> checkers);
  void show(Sequence& sequence, std::vector<BatchEvent>& events);
  void take_check(const CheckedStage& by, const CheckedRows& rows, Order order,
                  std::vector<BatchEvent>& events);
  void take_dispute(const CheckedStage& by, const CheckedRows& rows, Order order,
                    std::vector<BatchEvent>& events);
  void note_wrong(std::vector<WrongResult> wrong);
  bool waits_for_checks(const Sequence& sequence) const;

  // batching_plan.cpp: what runs next
  struct Draft;
  bool plan_alone(Draft& draft);
  bool plan_replay(Draft& draft);
  bool plan_decode(Draft& draft);
  void plan_prefill(Draft& draft);
  void start_queued();
  bool add_segment(Draft& draft, Order order, uint32_t rows);
  void put(Draft& draft, Order order, uint32_t position, uint32_t rows, bool sample);
  bool ensure_blocks(Order order, uint32_t positions);
  std::vector<Order> ready(bool decoding) const;
  size_t running(bool decoding) const;
  size_t lanes() const;

  BatchingLimits limits_;
  BlockPool pool_;
  std::map<Order, Sequence> sequences_;  // queued, running and leaving
  std::map<RequestId, Order> by_request_;
  std::set<Order> queue_;
  std::set<Order> running_;
  std::set<Order>
      leaving_;  // ended or preempted while in flight: their blocks come free when they land
  std::map<MicroBatchId, InFlight> in_flight_;
  std::vector<SequenceId> released_;
  std::map<SequenceId, Order> by_sequence_;  // running and leaving
  std::vector<Incarnation> checkers_;        // [stage]; empty: nobody checks any
  Disputes disputes_;
  std::vector<WrongResult> wrong_;
  bool has_view_ = false;
  Order last_order_ = 0;
  SequenceId last_sequence_;
  MicroBatchId last_batch_;
  BatchingFigures figures_;
};

}  // namespace troupe
