// A frame: what one edge carries. Header (Cap'n Proto, schemas/frame.capnp), then the raw payload,
// both under a keyed digest. Decoding trusts no byte: every count is limited before memory is
// taken.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/sampling.h"

namespace troupe {

enum class FrameKind : uint8_t {
  kTokens,       // batcher to stage 0: token ids, no payload
  kActivations,  // stage to stage: payload [rows][hidden] float32
  kSampled,      // last stage to batcher: sampled tokens, no payload
  kRefused,      // any stage to batcher: the micro-batch could not run; `refusal` says why
  kReplay,       // batcher to a stage: send these rows from your journal to the next stage
  kKvRows,       // stage to its standby: payload [rows][hidden] of 4 bytes, rows of its KV cache
  kKvStored,     // standby to its stage: segments' positions are the lengths it holds now
  kInputRows,    // stage to its standby: input it executed, and digests of what came out
  kChecked,      // standby to batcher: the same came out of these rows here, or not
  kWatermarks,   // stage to the one before it: standbys from it on hold what is below `position`
};
inline constexpr FrameKind kFrameKindLast = FrameKind::kWatermarks;
inline constexpr uint32_t kNoExit = UINT32_MAX;

struct FrameSegment {
  SequenceId sequence;
  uint32_t position = 0;  // kSampled: the sampled token's own position
  uint32_t rows = 0;
  std::vector<uint32_t> blocks;
  std::vector<uint32_t> tokens;  // kTokens: [rows]; kSampled: the one sampled token; else empty
  // kTokens, kActivations, kInputRows: the last row's logits choose the next token. kKvStored:
  // everything below the position was checked, not only stored. kKvRows: these rows will not be.
  bool sample = false;
  SamplingParameters sampling;
  uint64_t logits_digest = 0;  // kSampled
  // kInputRows, kChecked: [rows], digest of what came out of each row; 0: nothing did
  std::vector<uint64_t> outcomes;
  bool disputed = false;  // kKvStored, kChecked: the row at position + rows came out differently
  uint64_t seat_outcome = 0, standby_outcome = 0;  // kChecked, if disputed
};

struct FrameHeader {
  FrameKind kind = FrameKind::kTokens;
  ViewNumber view;
  Incarnation sender;
  Incarnation receiver;
  uint64_t edge_sequence = 0;  // 1, 2, … per (view, sender, receiver): repeats and gaps show
  MicroBatchId micro_batch;
  uint32_t exit_stage = kNoExit;  // the micro-batch ends at this stage, which answers kSampled
  uint32_t hidden = 0;            // columns of the payload, 0 without one
  std::vector<FrameSegment> segments;
  std::vector<SequenceId> released;
  std::string refusal;  // kRefused: what was wrong, for the log and the client
  ErrorCode refusal_code = ErrorCode::kInternal;
  uint32_t refusing_stage = 0;
  int64_t sent_unix_us =
      0;  // sender's wall clock, for hop latency on one host; never for decisions
};

struct Frame {
  FrameHeader header;
  SharedBuffer payload;
  std::shared_ptr<void> lease;  // of a received frame: dropping it returns the sender's credit
};

// Limits of a frame; more is an error at the sender and garbage at the receiver.
inline constexpr size_t kFrameHeaderMax = size_t{4} << 20;
inline constexpr size_t kFramePayloadMax = size_t{256} << 20;
inline constexpr size_t kFrameSegmentsMax = 4096;
inline constexpr size_t kSegmentBlocksMax = 16384;
inline constexpr size_t kSegmentTokensMax = 65536;

// Whether a frame keeps the rules: the limits above; kTokens with one token per row, kInputRows
// with one or none, kSampled with at most one per segment, other kinds with none; outcomes one per
// row where they belong; sampling parameters in range; a payload of rows · hidden 4-byte values for
// the kinds that carry one (kInputRows of tokens: none) and none (and no columns) for the others.
// Errors: kInvalidFrame.
// A transport that is given a frame which breaks them loses the connection, saying so.
Result<void> check_frame(const FrameHeader& header, size_t payload_bytes);

// The header's bytes: 16 bytes {magic, length, digest keyed over the rest}, then a Cap'n Proto flat
// array of one segment with the payload's digest inside. Equal headers give equal bytes. Errors:
// kInvalidFrame (check_frame, or more than kFrameHeaderMax).
Result<SharedBuffer> encode_frame_header(const FrameHeader& header, ByteSpan payload, uint64_t key);
// Errors: kInvalidFrame. Checks limits, the header's digest and the payload's digest.
Result<FrameHeader> decode_frame_header(ByteSpan header, ByteSpan payload, uint64_t key);

}  // namespace troupe
