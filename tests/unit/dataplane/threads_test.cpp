// The data path with its real threads: transport, compute and batcher at once, views that change
// while everything runs, stages that come and go. ThreadSanitizer looks at it, too.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/dataplane/batcher_port.h"
#include "actors/dataplane/frame_router.h"
#include "actors/dataplane/stage_port.h"
#include "transport/loopback.h"

namespace troupe {
namespace {

constexpr uint32_t kStages = 3;

// Tokens count up: the one at position p is p. Refuses gaps, holds positions.
class CountingProgram final : public StageProgram {
 public:
  explicit CountingProgram(bool last) : last_(last) {}
  Result<StageOutput> run(const MicroBatch& batch, std::span<const uint32_t>,
                          const SharedBuffer&) override {
    for (const Segment& segment : batch.segments)
      if (segment.position > held_[segment.sequence]) return Error{ErrorCode::kConflict, "a gap"};
    StageOutput output;
    if (!last_ && batch.rows() > 0) output.hidden = SharedBuffer::allocate(batch.rows() * 8);
    for (const Segment& segment : batch.segments) {
      uint32_t& length = held_[segment.sequence];
      length = std::max(length, segment.position + segment.rows);
      const uint32_t position = segment.position + segment.rows;
      if (last_ && segment.sample)
        output.sampled.push_back({segment.sequence, position, position, 1});
    }
    for (const SequenceId sequence : batch.released) held_.erase(sequence);
    return output;
  }
  void reset() override { held_.clear(); }
  uint32_t kv_length(SequenceId sequence) const override {
    const auto found = held_.find(sequence);
    return found == held_.end() ? 0 : found->second;
  }
  std::vector<SequenceHolding> holdings() const override {
    std::vector<SequenceHolding> all;
    for (const auto& [sequence, length] : held_) all.push_back({sequence, length, {0}});
    return all;
  }
  uint32_t kv_row_bytes() const override { return 4; }
  Result<SharedBuffer> read_kv(std::span<const Segment> segments) const override {
    size_t rows = 0;
    for (const Segment& segment : segments) rows += segment.rows;
    return SharedBuffer::allocate(rows * 4);
  }
  Result<void> write_kv(std::span<const Segment> segments, ByteSpan) override {
    for (const Segment& segment : segments) {
      if (segment.position > held_[segment.sequence]) return Error{ErrorCode::kConflict, "a gap"};
      held_[segment.sequence] = std::max(held_[segment.sequence], segment.position + segment.rows);
    }
    return {};
  }
  StageMemory memory() const override { return {}; }

 private:
  const bool last_;
  std::map<SequenceId, uint32_t> held_;
};

// One life of a stage, with a transport of its own as a process has.
struct StageLife {
  std::shared_ptr<FrameRouter> router = std::make_shared<FrameRouter>();
  std::shared_ptr<Transport> transport;
  std::shared_ptr<StagePort> port;
  Incarnation incarnation;
  uint32_t stage;

  StageLife(LoopbackHub& hub, uint32_t number, Incarnation life)
      : transport(hub.attach(*router)), incarnation(life), stage(number) {
    router->attach(transport);
    port = std::make_shared<StagePort>(StagePortOptions{.deployment = "d",
                                                        .stage = number,
                                                        .stages = kStages,
                                                        .incarnation = life,
                                                        .batcher = {},
                                                        .router = router,
                                                        .journal_bytes_max = 1 << 20,
                                                        .fail = [](const std::string&) {}});
    port->attach(threaded_compute(nullptr)(number, port->events([](Result<StageMemory>) {})));
    port->load([number]() -> Result<std::unique_ptr<StageProgram>> {
      return std::unique_ptr<StageProgram>(
          std::make_unique<CountingProgram>(number + 1 == kStages));
    });
    router->bind(life, port);
  }
  ~StageLife() {
    router->unbind(incarnation);
    port->close();
    router->detach();
  }
  Seat seat() const {
    return {.node = "n",
            .node_incarnation = {1},
            .incarnation = incarnation,
            .layers = {},
            .data_address = transport->address(),
            .process = 0};
  }
};

// Waits for what stages hold, as the scheduler does.
class Installation {
 public:
  explicit Installation(size_t wanted) : wanted_(wanted) {}
  void take(Result<StageHeld> held) {
    const std::lock_guard lock(mutex_);
    if (held.ok()) held_.push_back(std::move(held).value());
    changed_.notify_all();
  }
  std::vector<StageHeld> wait() {
    std::unique_lock lock(mutex_);
    BOOST_TEST_REQUIRE(changed_.wait_for(lock, 30s, [&] { return held_.size() == wanted_; }));
    return held_;
  }

 private:
  const size_t wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<StageHeld> held_;
};

struct Cluster {
  LoopbackHub hub{LoopbackPump::kThread};
  std::shared_ptr<FrameRouter> router = std::make_shared<FrameRouter>();
  std::shared_ptr<Transport> transport = hub.attach(*router);
  std::vector<std::unique_ptr<StageLife>> seats, standbys;
  std::shared_ptr<BatcherPort> batcher;
  uint64_t lives = 100, views = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<RequestId, std::vector<uint32_t>> tokens;
  size_t ended = 0;

  Cluster() {
    router->attach(transport);
    batcher = std::make_shared<BatcherPort>(
        BatcherPortOptions{.limits = {.stages = kStages, .in_flight_max = 4, .kv_blocks = 200},
                           .incarnation = {1},
                           .router = router,
                           .listener = [this](std::vector<BatchEvent> events) { hear(events); },
                           .now = [] { return Instant{1h}; }});
    router->bind({1}, batcher);
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      seats.push_back(life(stage));
      standbys.push_back(life(stage));
    }
    install();
  }
  ~Cluster() {
    router->unbind({1});
    seats.clear();
    standbys.clear();
    router->detach();
  }

  std::unique_ptr<StageLife> life(uint32_t stage) {
    return std::make_unique<StageLife>(hub, stage, Incarnation{++lives});
  }

  void hear(const std::vector<BatchEvent>& events) {
    const std::lock_guard lock(mutex);
    for (const BatchEvent& event : events) {
      if (event.token) tokens[event.id].push_back(*event.token);
      if (event.finish) ++ended;
    }
    changed.notify_all();
  }

  void install() {
    View view{.deployment = "d",
              .number = {++views},
              .batcher = {1},
              .batcher_address = transport->address(),
              .seats = {},
              .standbys = {}};
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      view.seats.push_back(seats[stage]->seat());
      view.standbys.push_back({stage, standbys[stage]->seat()});
    }
    Installation installation(kStages);
    for (const auto& standby : standbys) standby->port->set_view(view, [](Result<StageHeld>) {});
    for (const auto& seat : seats)
      seat->port->set_view(view, [&](Result<StageHeld> held) { installation.take(held); });
    batcher->start(view, installation.wait());
  }
};

BOOST_AUTO_TEST_SUITE(data_path_threads)

BOOST_AUTO_TEST_CASE(seats_fall_to_standbys_while_everything_runs) {
  constexpr uint32_t kRequests = 24, kTokens = 60;
  Cluster cluster;
  std::atomic<bool> over{false};
  // Somebody looks at figures all the time.
  std::thread watcher([&] {
    while (!over) {
      (void)cluster.batcher->figures();
      (void)cluster.router->figures();
      cluster.batcher->tick();
    }
  });
  for (uint32_t i = 0; i < kRequests; ++i)
    BOOST_TEST(cluster.batcher
                   ->submit({.id = std::to_string(i),
                             .prompt = std::vector<uint32_t>(1 + 7 * i, 3),
                             .generated = {},
                             .max_tokens = kTokens,
                             .sampling = {},
                             .stop_tokens = {}})
                   .ok());
  for (uint32_t change = 0; change < 40; ++change) {
    std::this_thread::sleep_for(2ms);
    const uint32_t stage = change % kStages;
    cluster.batcher->stop("a stage goes", std::nullopt);
    // The seat is gone, its standby takes it, and a new life follows.
    cluster.seats[stage] = std::exchange(cluster.standbys[stage], cluster.life(stage));
    cluster.install();
  }
  {
    std::unique_lock lock(cluster.mutex);
    BOOST_TEST(cluster.changed.wait_for(lock, 60s, [&] { return cluster.ended == kRequests; }));
    for (uint32_t i = 0; i < kRequests; ++i) {
      const auto& got = cluster.tokens[std::to_string(i)];
      BOOST_TEST_REQUIRE(got.size() == kTokens, "request " << i);
      for (uint32_t t = 0; t < kTokens; ++t) BOOST_TEST_REQUIRE(got[t] == 1 + 7 * i + t);
    }
  }
  over = true;
  watcher.join();
  BOOST_TEST(cluster.batcher->figures().divergences == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
