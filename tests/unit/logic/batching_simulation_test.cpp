// The batcher against a fake stage under random cancels, refusals, lost and repeated answers, view
// changes and want of KV blocks. Whatever happens, every request gets exactly the tokens of an
// undisturbed run, each once, in order.
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <map>
#include <random>
#include <set>

#include "tests/unit/logic/fake_model.h"

namespace troupe {
namespace {

using test::Answer;
using test::FakeModel;
using test::FakeStage;

struct Odds {  // per step, in percent
  uint32_t add, cancel, view_change, refuse, lose_answer, repeat_answer;
};

class Simulation {
 public:
  explicit Simulation(uint32_t seed)
      : seed_(seed),
        random_(seed),
        limits_(draw_limits()),
        odds_(draw_odds()),
        batching_(limits_),
        stage_(model_, limits_.kv_blocks) {}

  void run(int steps) {
    batching_.start_view();
    for (int i = 0; i < steps; ++i) step();
    heal();
    BOOST_TEST_REQUIRE(open_.empty(), "seed " << seed_);
    const BatchingFigures figures = batching_.figures();
    BOOST_TEST(figures.queued == 0U, "seed " << seed_);
    BOOST_TEST(figures.running == 0U, "seed " << seed_);
    BOOST_TEST(figures.in_flight == 0U, "seed " << seed_);
    BOOST_TEST(figures.kv_blocks_used == 0U, "seed " << seed_);
    BOOST_TEST(figures.requests_done == added_, "seed " << seed_);
    BOOST_TEST(figures.divergences == 0U, "seed " << seed_);
    BOOST_TEST(batching_.requests().empty(), "seed " << seed_);
    BOOST_TEST(stage_.sequences() == 0U, "seed " << seed_);  // stages were told of every end
  }

  uint32_t finished_fully() const { return finished_fully_; }
  uint32_t failed() const { return failed_; }

 private:
  struct Open {
    std::vector<uint32_t> expected;  // of the undisturbed run
    uint32_t next = 0;               // index of the next event
  };

  uint32_t upto(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }  // [0, limit)
  bool chance(uint32_t percent) { return upto(100) < percent; }

  BatchingLimits draw_limits() {
    const uint32_t rows[] = {1, 3, 16, 256}, chunks[] = {1, 7, 64};
    BatchingLimits limits;
    limits.stages = 1 + upto(4);
    limits.in_flight_max = 1 + upto(5);
    limits.rows_max = rows[upto(4)];
    limits.prefill_chunk_max = chunks[upto(3)];
    limits.running_max = 1 + upto(12);
    limits.queue_max = 40;
    limits.context_max = 64 * (1 + upto(6));
    limits.kv_blocks = 6 + upto(20);
    limits.reissue_after = 100ms;
    return limits;
  }

  Odds draw_odds() {
    const auto sometimes = [&](uint32_t most) { return chance(50) ? upto(most) : 0; };
    return {10 + upto(20), sometimes(6), sometimes(4), sometimes(6), sometimes(10), sometimes(20)};
  }

  void step() {
    now_ += std::chrono::milliseconds(upto(20));
    if (chance(odds_.add)) add();
    if (chance(odds_.cancel)) cancel();
    if (chance(odds_.view_change)) change_view();
    if (chance(70)) send();
    if (chance(80)) hear(chance(odds_.lose_answer), chance(odds_.repeat_answer));
    for (const PlannedBatch& batch : batching_.overdue(now_)) {
      BOOST_TEST_REQUIRE(out_.contains(batch.id), "seed " << seed_);
      execute(batch);
    }
    const BatchingFigures figures = batching_.figures();
    BOOST_TEST_REQUIRE(figures.kv_blocks_used <= limits_.kv_blocks, "seed " << seed_);
    BOOST_TEST_REQUIRE(figures.running <= limits_.running_max, "seed " << seed_);
    BOOST_TEST_REQUIRE(batching_.requests().size() == open_.size(), "seed " << seed_);
  }

  // No more faults: everything must come to its end.
  void heal() {
    odds_ = {};
    if (!has_view_) change_view();
    for (int i = 0; i < 200'000 && (!open_.empty() || batching_.figures().in_flight > 0); ++i) {
      step();
    }
    // Releases that had no micro-batch to ride with.
    while (true) {
      const auto batch = batching_.next(now_);
      if (!batch) break;
      BOOST_TEST(batch->segments.empty());
      BOOST_TEST(batching_.on_sampled(batch->id, stage_.run(*batch).rows).empty());
    }
  }

  void add() {
    const std::string id = fmt::format("request-{}", ++named_);
    BatchRequest request{.id = id,
                         .prompt = {},
                         .generated = {},
                         .max_tokens = 1 + upto(90),
                         .sampling = {.temperature = 0, .top_p = 1, .seed = random_()},
                         .stop_tokens = {}};
    for (uint32_t i = 1 + upto(limits_.context_max - 1); i > 0; --i)
      request.prompt.push_back(upto(kVocabulary));
    if (chance(50)) request.stop_tokens = {upto(kVocabulary), upto(kVocabulary)};
    const uint32_t room = limits_.context_max - static_cast<uint32_t>(request.prompt.size());
    Open open{model_.generate(request.prompt, request.sampling.seed,
                              std::min(request.max_tokens, room), request.stop_tokens)};
    if (chance(30)) {  // resumed after a batcher's death
      open.next = upto(static_cast<uint32_t>(open.expected.size()));
      request.generated.assign(open.expected.begin(), open.expected.begin() + open.next);
    }
    const auto added = batching_.add(std::move(request));
    if (!added.ok()) {
      BOOST_TEST_REQUIRE((added.error().code == ErrorCode::kResourceExhausted),
                         "seed " << seed_ << ": " << added.error().message);
      return;
    }
    ++added_;
    open_[id] = std::move(open);
  }

  void cancel() {
    if (open_.empty()) return;
    auto chosen = open_.begin();
    std::advance(chosen, upto(static_cast<uint32_t>(open_.size())));
    const RequestId id = chosen->first;
    const auto event = batching_.cancel(id);
    BOOST_TEST_REQUIRE(event.has_value(), "seed " << seed_);
    BOOST_TEST((event->finish == FinishReason::kCancelled));
    take({*event});
    BOOST_TEST(!batching_.cancel(id).has_value(), "seed " << seed_);
  }

  void change_view() {
    if (has_view_ && chance(50)) {
      batching_.stop_view();
      has_view_ = false;
      BOOST_TEST(!batching_.next(now_).has_value(), "seed " << seed_);
      BOOST_TEST(batching_.overdue(now_ + 1h).empty(), "seed " << seed_);
      return;
    }
    batching_.start_view();
    has_view_ = true;
    stage_.reset();
    out_.clear();  // their answers may still come: nobody waits for them
  }

  void send() {
    while (const auto batch = batching_.next(now_)) {
      check(*batch);
      out_[batch->id] = *batch;
      BOOST_TEST_REQUIRE(out_.size() <= limits_.in_flight_max, "seed " << seed_);
      execute(*batch);
    }
  }

  void check(const PlannedBatch& batch) {
    std::set<SequenceId> busy;
    std::map<uint32_t, SequenceId> owner;
    const auto claim = [&](const PlannedBatch& planned) {
      for (const PlannedSegment& segment : planned.segments) {
        BOOST_TEST_REQUIRE(busy.insert(segment.sequence).second, "twice in flight, seed " << seed_);
        for (const uint32_t block : segment.blocks)
          BOOST_TEST_REQUIRE(owner.emplace(block, segment.sequence).second,
                             "block shared, seed " << seed_);
      }
    };
    for (const auto& [id, planned] : out_) claim(planned);
    claim(batch);
    size_t rows = 0;
    for (const PlannedSegment& segment : batch.segments) {
      rows += segment.tokens.size();
      BOOST_TEST_REQUIRE(!segment.tokens.empty(), "seed " << seed_);
      BOOST_TEST_REQUIRE(segment.tokens.size() <= limits_.prefill_chunk_max, "seed " << seed_);
      const size_t end = segment.position + segment.tokens.size();
      BOOST_TEST_REQUIRE(end < limits_.context_max, "seed " << seed_);
      BOOST_TEST_REQUIRE(segment.blocks.size() == BlockPool::blocks_for(static_cast<uint32_t>(end)),
                         "seed " << seed_);
    }
    BOOST_TEST_REQUIRE(rows <= limits_.rows_max, "seed " << seed_);
    BOOST_TEST_REQUIRE((rows > 0 || out_.empty()), "bare releases beside work, seed " << seed_);
  }

  void execute(const PlannedBatch& batch) {
    if (chance(odds_.refuse)) {
      answers_.push_back({batch.id, {}, "by chance"});
    } else {
      answers_.push_back(stage_.run(batch));
      // The batcher knows what the stage holds, also in a new view: it never leaves a gap.
      BOOST_TEST_REQUIRE(answers_.back().refusal.empty(), "gap, seed " << seed_);
    }
  }

  // One answer, any of them: on their way back they may overtake one another, get lost, or come
  // twice.
  void hear(bool lost, bool repeated) {
    if (answers_.empty()) return;
    const size_t chosen = upto(static_cast<uint32_t>(answers_.size()));
    const Answer answer = answers_[chosen];
    if (!repeated) answers_.erase(answers_.begin() + static_cast<ptrdiff_t>(chosen));
    if (lost) return;
    out_.erase(answer.id);
    take(answer.refusal.empty() ? batching_.on_sampled(answer.id, answer.rows)
                                : batching_.on_refused(answer.id, answer.refusal));
  }

  void take(const std::vector<BatchEvent>& events) {
    for (const BatchEvent& event : events) {
      const auto known = open_.find(event.id);
      BOOST_TEST_REQUIRE((known != open_.end()), "event after the end, seed " << seed_);
      Open& open = known->second;
      BOOST_TEST_REQUIRE(event.index == open.next, "seed " << seed_);
      if (event.token) {
        BOOST_TEST_REQUIRE(*event.token == open.expected.at(open.next), "seed " << seed_);
        ++open.next;
        const bool is_last = open.next == open.expected.size();
        BOOST_TEST_REQUIRE(event.finish.has_value() == is_last, "seed " << seed_);
        finished_fully_ += is_last;
      } else {
        BOOST_TEST_REQUIRE(event.finish.has_value(), "seed " << seed_);
        failed_ += *event.finish == FinishReason::kFailed;
        if (*event.finish == FinishReason::kFailed)
          BOOST_TEST_REQUIRE(event.failure.starts_with("refused 4 times in a row: "),
                             "seed " << seed_ << ": " << event.failure);
      }
      if (event.finish) {
        open_.erase(known);
      } else {
        const std::vector<uint32_t> known_tokens(open.expected.begin(),
                                                 open.expected.begin() + open.next);
        BOOST_TEST_REQUIRE((batching_.generated(event.id) == known_tokens), "seed " << seed_);
      }
    }
  }

  static constexpr uint32_t kVocabulary = 50;  // small, so that stop tokens are hit

  uint32_t seed_;
  std::mt19937 random_;
  BatchingLimits limits_;
  Odds odds_;
  FakeModel model_{kVocabulary};
  Batching batching_;
  FakeStage stage_;
  Instant now_{1h};
  bool has_view_ = true;
  std::map<RequestId, Open> open_;
  std::map<MicroBatchId, PlannedBatch> out_;
  std::vector<Answer> answers_;
  uint32_t named_ = 0, added_ = 0, finished_fully_ = 0, failed_ = 0;
};

BOOST_AUTO_TEST_SUITE(batching_simulation)

BOOST_AUTO_TEST_CASE(every_request_gets_the_tokens_of_an_undisturbed_run) {
  uint32_t finished = 0, failed = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    Simulation simulation(seed);
    simulation.run(400);
    finished += simulation.finished_fully();
    failed += simulation.failed();
  }
  // The faults must not be so many that nothing is tested, nor so few.
  BOOST_TEST_MESSAGE(finished << " finished, " << failed << " failed");
  BOOST_TEST(finished > 5000U);
  BOOST_TEST(failed < finished / 5);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
