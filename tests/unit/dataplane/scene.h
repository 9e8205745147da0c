// One process with stages in it, over the loopback transport pumped by hand; and a program that is
// easy to foresee.
#pragma once

#include <boost/test/unit_test.hpp>

#include <map>
#include <memory>
#include <vector>

#include "actors/dataplane/frame_router.h"
#include "actors/dataplane/stage_port.h"
#include "transport/loopback.h"

namespace troupe::test {

// Holds positions of sequences; a row of output is four bytes of the row's position, a row of KV
// four bytes of the same.
class FakeProgram final : public StageProgram {
 public:
  Result<StageOutput> run(const MicroBatch& batch, std::span<const uint32_t>,
                          const SharedBuffer&) override {
    std::map<SequenceId, uint32_t> reached = held;
    for (const Segment& segment : batch.segments) {
      uint32_t& end = reached[segment.sequence];
      if (segment.position > end) return Error{ErrorCode::kConflict, "a gap"};
      end = std::max(end, segment.position + segment.rows);
    }
    if (fails) return Error{ErrorCode::kInvalidFrame, "no number came out"};
    StageOutput output;
    output.hidden = SharedBuffer::allocate(batch.rows() * 4);
    auto* row = reinterpret_cast<uint32_t*>(output.hidden.mutable_data());
    for (const Segment& segment : batch.segments) {
      for (uint32_t r = 0; r < segment.rows; ++r) *row++ = value(segment.position + r);
      uint32_t& length = held[segment.sequence];
      length = std::max(length, segment.position + segment.rows);
      if (segment.sample) output.sampled.push_back({segment.sequence, length, 7, 1});
    }
    for (const SequenceId sequence : batch.released) held.erase(sequence);
    ++runs;
    return output;
  }
  void reset() override { held.clear(); }
  uint32_t kv_length(SequenceId sequence) const override {
    const auto found = held.find(sequence);
    return found == held.end() ? 0 : found->second;
  }
  std::vector<SequenceHolding> holdings() const override {
    std::vector<SequenceHolding> all;
    for (const auto& [sequence, length] : held) all.push_back({sequence, length, {3}});
    return all;
  }
  uint32_t kv_row_bytes() const override { return 4; }
  Result<SharedBuffer> read_kv(std::span<const Segment> segments) const override {
    size_t rows = 0;
    for (const Segment& segment : segments) rows += segment.rows;
    SharedBuffer bytes = SharedBuffer::allocate(rows * 4);
    auto* row = reinterpret_cast<uint32_t*>(bytes.mutable_data());
    for (const Segment& segment : segments)
      for (uint32_t r = 0; r < segment.rows; ++r) *row++ = segment.position + r;
    return bytes;
  }
  Result<void> write_kv(std::span<const Segment> segments, ByteSpan rows) override {
    const auto* row = reinterpret_cast<const uint32_t*>(rows.data());
    for (const Segment& segment : segments) {
      if (segment.position > held[segment.sequence]) return Error{ErrorCode::kConflict, "a gap"};
      for (uint32_t r = 0; r < segment.rows; ++r)
        if (*row++ != segment.position + r) return Error{ErrorCode::kInternal, "wrong rows"};
      held[segment.sequence] = std::max(held[segment.sequence], segment.position + segment.rows);
    }
    return {};
  }
  StageMemory memory() const override { return {}; }

  uint32_t value(uint32_t position) const { return position == wrong_at ? ~position : position; }

  std::map<SequenceId, uint32_t> held;
  uint32_t wrong_at = UINT32_MAX;  // the output of this position is another
  bool fails = false;
  int runs = 0;
};

class Collected final : public FrameSink {
 public:
  void on_frame(FramePtr frame) override { frames.push_back(std::move(frame)); }
  std::vector<FramePtr> frames;
};

// One process: everything at one address.
struct Process {
  LoopbackHub hub{LoopbackPump::kByHand};
  std::shared_ptr<FrameRouter> router = std::make_shared<FrameRouter>();
  std::shared_ptr<Transport> transport = hub.attach(*router);
  Process() { router->attach(transport); }
  ~Process() { router->detach(); }

  void pump() {
    while (hub.pump() > 0) {
    }
  }
  std::shared_ptr<Collected> listen(uint64_t incarnation) {
    auto sink = std::make_shared<Collected>();
    router->bind(Incarnation{incarnation}, sink);
    return sink;
  }
};

inline constexpr uint64_t kBatcher = 1;
inline uint64_t life(uint32_t stage) {
  return 10 + stage;
}

struct Stage {
  std::shared_ptr<StagePort> port;
  FakeProgram* program = nullptr;
  int struck = 0;

  Stage(Process& process, uint32_t stage, uint32_t stages, uint64_t incarnation,
        uint64_t journal = 1 << 20) {
    port = std::make_shared<StagePort>(
        StagePortOptions{.deployment = "d",
                         .stage = stage,
                         .stages = stages,
                         .incarnation = Incarnation{incarnation},
                         .batcher = {},
                         .router = process.router,
                         .journal_bytes_max = journal,
                         .fail = [this](const std::string&) { ++struck; }});
    port->attach(inline_compute()(stage, port->events([](Result<StageMemory>) {})));
    auto made = std::make_unique<FakeProgram>();
    program = made.get();
    port->load([&made]() -> Result<std::unique_ptr<StageProgram>> {
      return std::unique_ptr<StageProgram>(std::move(made));
    });
    process.router->bind(Incarnation{incarnation}, port);
  }
  ~Stage() { port->close(); }

  Result<StageHeld> set(const View& view) {
    Result<StageHeld> outcome = Error{ErrorCode::kInternal, "no answer"};
    port->set_view(view, [&](Result<StageHeld> held) { outcome = std::move(held); });
    return outcome;
  }
};

inline View view_of(Process& process, uint64_t number, std::vector<uint64_t> seats,
                    uint64_t batcher = kBatcher) {
  View view{.deployment = "d",
            .number = {number},
            .batcher = {batcher},
            .batcher_address = process.transport->address(),
            .seats = {},
            .standbys = {}};
  for (const uint64_t seat : seats)
    view.seats.push_back({.node = "n",
                          .node_incarnation = {1},
                          .incarnation = {seat},
                          .layers = {},
                          .data_address = process.transport->address(),
                          .process = 0});
  return view;
}

}  // namespace troupe::test
