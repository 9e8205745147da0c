#include "actors/dataplane/stage_port.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/log.h"

namespace troupe {
namespace {

constexpr const char* kInjected = "injected fault";

int64_t unix_now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

const Standby* standby_of(const View& view, uint32_t stage) {
  const auto found = std::find_if(view.standbys.begin(), view.standbys.end(),
                                  [&](const Standby& one) { return one.stage == stage; });
  return found == view.standbys.end() ? nullptr : &*found;
}

// A fault for tests: one bit of the result is wrong, as after a mistake of the arithmetic.
StageOutput with_flipped_bit(const StageOutput& output) {
  StageOutput flipped = output;
  if (!output.hidden.empty()) {
    flipped.hidden = SharedBuffer::allocate(output.hidden.size());
    std::memcpy(flipped.hidden.mutable_data(), output.hidden.data(), output.hidden.size());
    const size_t number = output.hidden.size() / sizeof(float) / 2;
    flipped.hidden.mutable_data()[number * sizeof(float) + 3] ^= std::byte{0x80};  // its sign
  } else if (!flipped.sampled.empty()) {
    flipped.sampled.front().token ^= 1;
    flipped.sampled.front().logits_digest ^= 1;
  }
  return flipped;
}

}  // namespace

StagePort::StagePort(StagePortOptions options)
    : options_(std::move(options)), fence_(options_.incarnation) {
  view_.batcher = options_.batcher;
}
StagePort::~StagePort() = default;

ComputeEvents StagePort::events(std::function<void(Result<StageMemory>)> loaded) {
  // The compute ends before this does: close().
  return ComputeEvents{
      .loaded = std::move(loaded),
      .starting = [this] { return starting(); },
      .computed = [this](const FramePtr& input, const Result<StageOutput>& output,
                         StageProgram& program) { computed(input, output, program); }};
}

void StagePort::attach(std::unique_ptr<StageCompute> compute) {
  const std::lock_guard gate(gate_);
  compute_ = std::move(compute);
}

void StagePort::load(ProgramLoader loader) {
  const std::lock_guard gate(gate_);
  if (compute_) compute_->load(std::move(loader));
}

void StagePort::close() {
  std::unique_ptr<StageCompute> compute;
  {
    const std::lock_guard gate(gate_);
    compute = std::move(compute_);
  }
}

void StagePort::set_view(const View& next, const Installed& done) {
  const uint32_t stage = options_.stage;
  const Standby* standby = standby_of(next, stage);
  const bool seated =
      stage < next.seats.size() && next.seats[stage].incarnation == options_.incarnation;
  const bool stands_by = standby != nullptr && standby->seat.incarnation == options_.incarnation;
  if (!seated && !stands_by)
    return done(Error{ErrorCode::kFenced, "the view names another life for this stage"});
  std::vector<Incarnation> senders;
  if (seated) {
    senders.push_back(next.batcher);
    if (stage > 0) senders.push_back(next.seats[stage - 1].incarnation);
    if (stage + 1 < next.seats.size()) senders.push_back(next.seats[stage + 1].incarnation);
    if (standby != nullptr) senders.push_back(standby->seat.incarnation);
  } else {
    senders.push_back(next.seats[stage].incarnation);
  }
  bool same_batcher = true;
  ViewFence::Installed installed;
  {
    const std::lock_guard lock(mutex_);
    installed = fence_.install(next.number, senders);
    if (installed == ViewFence::Installed::kInstalled) {
      same_batcher = view_.batcher == next.batcher;
      take_view(next, seated, same_batcher);
    }
  }
  if (installed == ViewFence::Installed::kOld)
    return done(Error{ErrorCode::kFenced,
                      fmt::format("view {} is older than the one installed", next.number.value)});
  const std::lock_guard gate(gate_);
  if (!compute_) return done(Error{ErrorCode::kUnavailable, "the stage is ending"});
  compute_->set_view(next.number);
  compute_->post([this, same_batcher, done](StageProgram& program) {
    if (!same_batcher) program.reset();  // another batcher numbers its sequences anew
    done(held(program));
  });
}

// Under mutex_.
void StagePort::take_view(const View& next, bool seated, bool same_batcher) {
  view_ = next;
  role_ = seated ? Role::kSeat : Role::kStandby;
  standby_ = seated ? standby_of(view_, options_.stage) : nullptr;
  sent_.clear();
  watermarks_.clear();  // another standby may hold less
  if (!same_batcher && journal_) journal_->clear();
  if (!same_batcher) disputed_.clear();
  if (!same_batcher || seated) checked_.clear();
  const Incarnation follows = standby_ ? standby_->seat.incarnation : Incarnation{};
  const StandbyPolicy how = standby_ ? standby_->policy : StandbyPolicy::kNone;
  if (follows != fed_ || how != fed_how_ || !same_batcher) {
    const bool checks = how == StandbyPolicy::kInput;
    fed_ = follows;
    fed_how_ = how;
    feed_ = follows ? std::make_unique<StandbyFeed>(checks ? 1 : kFeedBatchRows, kFeedFrameRows)
                    : nullptr;
    inputs_ = checks ? std::make_unique<InputLog>(kInputLogBytesMax) : nullptr;
    feed_released_.clear();
  } else if (feed_) {
    feed_->on_lost();  // its answer would be of the view that is gone
  }
  log_info("stage", "{} stage {}: view {} installed{}", options_.deployment, options_.stage,
           next.number.value, seated ? "" : " as standby");
}

// Which kinds may come from whom; the fence has checked that the sender is one of the view's.
bool StagePort::expects(const FrameHeader& header) const {
  const bool from_batcher = header.sender == view_.batcher;
  if (role_ == Role::kStandby)
    return header.kind == FrameKind::kKvRows || header.kind == FrameKind::kInputRows;
  switch (header.kind) {
    case FrameKind::kTokens:
      return first() && from_batcher;
    case FrameKind::kActivations:
      return !first() && header.sender == view_.seats[options_.stage - 1].incarnation;
    case FrameKind::kReplay:
      return !last() && from_batcher;
    case FrameKind::kWatermarks:
      return !last() && header.sender == view_.seats[options_.stage + 1].incarnation;
    case FrameKind::kKvStored:
      return standby_ != nullptr && header.sender == standby_->seat.incarnation;
    default:
      return false;
  }
}

void StagePort::on_frame(FramePtr frame) {
  const FrameHeader& header = frame->header;
  if (faults_.pass(FaultPoint::kArrive) == FaultAction::kThrow) return options_.fail(kInjected);
  {
    const std::lock_guard lock(mutex_);
    const FenceVerdict verdict =
        fence_.check(header.view, header.sender, header.receiver, header.edge_sequence);
    if (!usable(verdict)) {
      log_debug("stage", "fenced a frame of view {} from {}: {}", header.view.value,
                to_string(header.sender), to_string(verdict));
      return;
    }
    if (header.sent_unix_us > 0 && header.kind <= FrameKind::kActivations)
      hops_.record(
          std::chrono::microseconds{std::max<int64_t>(0, unix_now_us() - header.sent_unix_us)});
    if (!expects(header))
      return refuse(header,
                    Error{ErrorCode::kInvalidFrame, "a frame of the wrong kind for this stage"});
    if (header.kind == FrameKind::kReplay) return replay(frame);
    if (header.kind == FrameKind::kWatermarks) return trim_journal(header);
    if (header.kind == FrameKind::kKvStored) stored(header);
  }
  if (faults_.pass(FaultPoint::kAccept) == FaultAction::kThrow) return options_.fail(kInjected);
  bool taken = true;
  {
    const std::lock_guard gate(gate_);
    if (!compute_) return;
    if (header.kind == FrameKind::kKvRows)
      compute_->post([this, frame](StageProgram& program) { store_rows(frame, program); });
    else if (header.kind == FrameKind::kKvStored)
      compute_->post([this](StageProgram& program) { feed_standby(program); });
    else
      taken = compute_->run(frame);
  }
  if (taken) return;
  const std::lock_guard lock(mutex_);
  refuse(header, Error{ErrorCode::kResourceExhausted, "too many frames wait at this stage"});
}

// On the compute thread, as everything from here on.
bool StagePort::starting() {
  const auto fault = faults_.pass(FaultPoint::kCompute);
  if (fault == FaultAction::kThrow) options_.fail(kInjected);
  return !fault;
}

void StagePort::computed(const FramePtr& frame, const Result<StageOutput>& output,
                         StageProgram& program) {
  if (const auto fault = faults_.pass(FaultPoint::kComputed)) {
    if (fault == FaultAction::kThrow) options_.fail(kInjected);
    if (fault == FaultAction::kThrow || fault == FaultAction::kHang) return;
    if (fault == FaultAction::kFlip && output.ok())
      return deliver(frame, with_flipped_bit(output.value()), program);
  }
  deliver(frame, output, program);
}

void StagePort::deliver(const FramePtr& frame, const Result<StageOutput>& output,
                        StageProgram& program) {
  const FrameHeader& input = frame->header;
  if (input.kind == FrameKind::kInputRows) return check_input(frame, output, program);
  {
    const std::lock_guard lock(mutex_);
    if (input.view != view_.number) return;  // computed for a view that is gone
    if (!output.ok()) return refuse(input, output.error());
    keep_output(input, output.value());
    log_input(frame, output.value());
    if (last() || options_.stage == input.exit_stage)
      send_sampled(input, output.value());
    else
      send_next(input, output.value().hidden);
  }
  if (faults_.pass(FaultPoint::kSent) == FaultAction::kThrow) options_.fail(kInjected);
  feed_standby(program);
}

Frame StagePort::frame_to(FrameKind kind, Incarnation receiver, ViewNumber view,
                          MicroBatchId micro_batch) {
  Frame frame;
  frame.header.kind = kind;
  frame.header.view = view;
  frame.header.sender = options_.incarnation;
  frame.header.receiver = receiver;
  frame.header.edge_sequence = ++sent_[receiver];
  frame.header.micro_batch = micro_batch;
  frame.header.sent_unix_us = unix_now_us();
  return frame;
}

void StagePort::send(const std::vector<std::byte>& address, Frame frame) {
  options_.router->send(address, std::make_shared<Frame>(std::move(frame)));
}

void StagePort::send_next(const FrameHeader& input, SharedBuffer hidden) {
  const Seat& next = view_.seats[options_.stage + 1];
  Frame frame = frame_to(FrameKind::kActivations, next.incarnation, input.view, input.micro_batch);
  frame.header.segments = input.segments;
  frame.header.released = input.released;
  frame.header.exit_stage = input.exit_stage;
  uint64_t rows = 0;
  for (FrameSegment& segment : frame.header.segments) {
    segment.tokens.clear();
    rows += segment.rows;
  }
  if (rows > 0) frame.header.hidden = static_cast<uint32_t>(hidden.size() / sizeof(float) / rows);
  frame.payload = std::move(hidden);
  send(next.data_address, std::move(frame));
}

// Also what a replay that ends here answers: no tokens then.
void StagePort::send_sampled(const FrameHeader& input, const StageOutput& output) {
  Frame frame = frame_to(FrameKind::kSampled, view_.batcher, input.view, input.micro_batch);
  for (const SampledToken& sampled : output.sampled) {
    FrameSegment segment;
    segment.sequence = sampled.sequence;
    segment.position = sampled.position;
    segment.rows = 1;
    segment.tokens = {sampled.token};
    segment.logits_digest = sampled.logits_digest;
    frame.header.segments.push_back(std::move(segment));
  }
  send(view_.batcher_address, std::move(frame));
}

void StagePort::refuse(const FrameHeader& input, const Error& why) {
  ++refused_;
  log_warning("stage", "refused micro-batch {}: {}", input.micro_batch.value, to_string(why));
  if (view_.number != input.view || role_ != Role::kSeat) return;
  Frame frame = frame_to(FrameKind::kRefused, view_.batcher, input.view, input.micro_batch);
  frame.header.refusal = why.message;
  frame.header.refusal_code = why.code;
  frame.header.refusing_stage = options_.stage;
  send(view_.batcher_address, std::move(frame));
}

void StagePort::report(StageFigures& figures) const {
  const std::lock_guard lock(mutex_);
  figures.hop_p50_ns = static_cast<uint64_t>(hops_.quantile(0.5).count());
  figures.hop_p99_ns = static_cast<uint64_t>(hops_.quantile(0.99).count());
  figures.fenced_frames = fence_.dropped();
  figures.garbage_frames = refused_;
  figures.journal_bytes = journal_ ? journal_->bytes() : 0;
  figures.standby = fed_;
  figures.standby_behind = feed_ ? feed_->behind() : 0;
}

}  // namespace troupe
