// Encoded header: a 16-byte prefix {magic, message bytes, keyed digest of the message}, then one
// Cap'n Proto message as a flat array of exactly one segment. Nothing of a message is looked at
// before its prefix, its digest and its segment table are right; nothing is reserved before a count
// was compared with its limit. A keyed digest keeps out accidents and strangers without the key,
// not a peer that means harm, so the Cap'n Proto reader has its own limits, and what it throws ends
// at decode_message().
#include "transport/frame.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <exception>

#include "base/digest.h"
#include "schemas/frame.capnp.h"

namespace troupe {
namespace {

constexpr uint32_t kMagic = 0x31465254;  // "TRF1"
constexpr size_t kPrefixBytes = 16;
constexpr size_t kSegmentTableBytes = 8;  // segment count - 1 = 0, words of the segment
constexpr size_t kWordBytes = sizeof(capnp::word);
constexpr uint64_t kReleasedMax = kFrameSegmentsMax;
constexpr size_t kRefusalMax = 4096;
// FrameHeader → list of segments → list of numbers: four levels with the root pointer.
constexpr int kNestingMax = 6;

struct Prefix {
  uint32_t magic;
  uint32_t message_bytes;
  uint64_t digest;
};
static_assert(sizeof(Prefix) == kPrefixBytes);

Error invalid(std::string what) {
  return Error{ErrorCode::kInvalidFrame, std::move(what)};
}

Error over_limit(const char* what, uint64_t seen, uint64_t limit) {
  return invalid(fmt::format("{}: {}, limit {}", what, seen, limit));
}

// What a segment of a frame of this kind may carry; the same for what is sent and what is received.
Result<void> check_segment(const FrameSegment& segment, FrameKind kind) {
  if (segment.rows > kSegmentTokensMax)
    return over_limit("rows of a segment", segment.rows, kSegmentTokensMax);
  if (segment.blocks.size() > kSegmentBlocksMax)
    return over_limit("blocks of a segment", segment.blocks.size(), kSegmentBlocksMax);
  if (segment.tokens.size() > kSegmentTokensMax)
    return over_limit("tokens of a segment", segment.tokens.size(), kSegmentTokensMax);
  const size_t tokens = segment.tokens.size();
  if (kind == FrameKind::kTokens && tokens != segment.rows)
    return invalid(fmt::format("segment of {} rows with {} tokens", segment.rows, tokens));
  if (kind == FrameKind::kSampled && tokens > 1)
    return invalid(fmt::format("{} sampled tokens in a segment, at most 1", tokens));
  if (kind == FrameKind::kInputRows && tokens != 0 && tokens != segment.rows)
    return invalid(fmt::format("segment of {} rows with {} tokens", segment.rows, tokens));
  const bool with_tokens =
      kind == FrameKind::kTokens || kind == FrameKind::kSampled || kind == FrameKind::kInputRows;
  if (!with_tokens && tokens != 0)
    return invalid(fmt::format("{} tokens in a frame that carries none", tokens));
  const bool with_outcomes = kind == FrameKind::kInputRows || kind == FrameKind::kChecked;
  const size_t outcomes_wanted = with_outcomes ? segment.rows : 0;
  if (segment.outcomes.size() != outcomes_wanted)
    return invalid(fmt::format("segment of {} rows with {} outcomes, {} belong there", segment.rows,
                               segment.outcomes.size(), outcomes_wanted));
  return check_sampling(segment.sampling, ErrorCode::kInvalidFrame);
}

Result<void> check_counts(const FrameHeader& header, size_t payload_bytes) {
  if (header.segments.size() > kFrameSegmentsMax)
    return over_limit("segments", header.segments.size(), kFrameSegmentsMax);
  if (header.released.size() > kReleasedMax)
    return over_limit("released sequences", header.released.size(), kReleasedMax);
  if (header.refusal.size() > kRefusalMax)
    return over_limit("refusal bytes", header.refusal.size(), kRefusalMax);
  if (payload_bytes > kFramePayloadMax)
    return over_limit("payload bytes", payload_bytes, kFramePayloadMax);
  return {};
}

}  // namespace

Result<void> check_frame(const FrameHeader& header, size_t payload_bytes) {
  if (header.kind > kFrameKindLast)
    return invalid(fmt::format("frame kind {}, known 0 to {}", static_cast<int>(header.kind),
                               static_cast<int>(kFrameKindLast)));
  TROUPE_TRY_VOID(check_counts(header, payload_bytes));
  uint64_t rows = 0;
  for (const FrameSegment& segment : header.segments) {
    TROUPE_TRY_VOID(check_segment(segment, header.kind));
    rows += segment.rows;
  }
  // At most 4096 · 65536 rows of 2^32 columns: the product of the two fits 64 bits only without
  // the 4.
  const bool carries = header.kind == FrameKind::kActivations ||
                       header.kind == FrameKind::kKvRows || header.kind == FrameKind::kInputRows;
  const uint64_t columns = carries ? header.hidden : 0;
  // Keeps the product below 2^57: at most 2^12 segments of 2^16 rows.
  if (columns > kFramePayloadMax) return over_limit("columns", columns, kFramePayloadMax);
  if (rows * columns != payload_bytes / sizeof(float) || payload_bytes % sizeof(float) != 0)
    return invalid(
        fmt::format("payload of {} bytes for {} rows of {} float32", payload_bytes, rows, columns));
  if (!carries && header.hidden != 0)
    return invalid(fmt::format("{} columns in a frame without a payload", header.hidden));
  return {};
}

namespace {

// An upper bound, so that the message is one segment and is built without growing.
size_t words_max(const FrameHeader& header) {
  constexpr size_t kFixedWords = 64;  // root, its struct, list tags and rounding
  size_t words = kFixedWords + header.released.size() + header.refusal.size() / kWordBytes;
  for (const FrameSegment& segment : header.segments)
    words += 20 + (segment.blocks.size() + segment.tokens.size()) / 2 + 2 + segment.outcomes.size();
  return words;
}

template <class List, class Values>
void fill(List list, const Values& values) {
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, values[i]);
}

void write_segment(wire::Segment::Builder out, const FrameSegment& segment) {
  out.setSequence(segment.sequence.value);
  out.setPosition(segment.position);
  out.setRows(segment.rows);
  if (!segment.blocks.empty())
    fill(out.initBlocks(static_cast<unsigned>(segment.blocks.size())), segment.blocks);
  if (!segment.tokens.empty())
    fill(out.initTokens(static_cast<unsigned>(segment.tokens.size())), segment.tokens);
  out.setSample(segment.sample);
  out.setTemperature(segment.sampling.temperature);
  out.setTopP(segment.sampling.top_p);
  out.setSeed(segment.sampling.seed);
  out.setTopK(segment.sampling.top_k);
  out.setMinP(segment.sampling.min_p);
  out.setLogitsDigest(segment.logits_digest);
  if (!segment.outcomes.empty())
    fill(out.initOutcomes(static_cast<unsigned>(segment.outcomes.size())), segment.outcomes);
  out.setDisputed(segment.disputed);
  out.setSeatOutcome(segment.seat_outcome);
  out.setStandbyOutcome(segment.standby_outcome);
}

void write_header(wire::FrameHeader::Builder out, const FrameHeader& header) {
  out.setKind(static_cast<wire::FrameKind>(header.kind));
  out.setView(header.view.value);
  out.setSender(header.sender.value);
  out.setReceiver(header.receiver.value);
  out.setEdgeSequence(header.edge_sequence);
  out.setMicroBatch(header.micro_batch.value);
  out.setHidden(header.hidden);
  if (!header.segments.empty()) {
    auto segments = out.initSegments(static_cast<unsigned>(header.segments.size()));
    for (unsigned i = 0; i < segments.size(); ++i) write_segment(segments[i], header.segments[i]);
  }
  if (!header.released.empty()) {
    auto released = out.initReleased(static_cast<unsigned>(header.released.size()));
    for (unsigned i = 0; i < released.size(); ++i) released.set(i, header.released[i].value);
  }
  if (!header.refusal.empty())
    out.setRefusal(kj::StringPtr(header.refusal.c_str(), header.refusal.size()));
  out.setRefusalCode(static_cast<uint8_t>(header.refusal_code));
  out.setRefusingStage(header.refusing_stage);
  out.setSentUnixUs(header.sent_unix_us);
  out.setExitStage(header.exit_stage);
}

template <class Number>
Result<void> read_numbers(const typename capnp::List<Number>::Reader& list, const char* what,
                          size_t limit, std::vector<Number>& out) {
  if (list.size() > limit) return over_limit(what, list.size(), limit);
  out.reserve(list.size());
  for (const Number value : list) out.push_back(value);
  return {};
}

Result<FrameSegment> read_segment(wire::Segment::Reader in) {
  FrameSegment segment;
  segment.sequence = {in.getSequence()};
  segment.position = in.getPosition();
  segment.rows = in.getRows();
  TROUPE_TRY_VOID(
      read_numbers(in.getBlocks(), "blocks of a segment", kSegmentBlocksMax, segment.blocks));
  TROUPE_TRY_VOID(
      read_numbers(in.getTokens(), "tokens of a segment", kSegmentTokensMax, segment.tokens));
  segment.sample = in.getSample();
  segment.sampling = {in.getTemperature(), in.getTopP(), in.getSeed(), in.getTopK(), in.getMinP()};
  segment.logits_digest = in.getLogitsDigest();
  TROUPE_TRY_VOID(
      read_numbers(in.getOutcomes(), "outcomes of a segment", kSegmentTokensMax, segment.outcomes));
  segment.disputed = in.getDisputed();
  segment.seat_outcome = in.getSeatOutcome();
  segment.standby_outcome = in.getStandbyOutcome();
  return segment;
}

Result<void> read_fields(wire::FrameHeader::Reader in, FrameHeader& header) {
  const auto kind = static_cast<uint16_t>(in.getKind());
  if (kind > static_cast<uint16_t>(kFrameKindLast))
    return invalid(
        fmt::format("frame kind {}, known 0 to {}", kind, static_cast<int>(kFrameKindLast)));
  if (in.getRefusalCode() > static_cast<uint8_t>(ErrorCode::kInternal))
    return invalid(fmt::format("refusal code {}, known 0 to {}", in.getRefusalCode(),
                               static_cast<int>(ErrorCode::kInternal)));
  header.kind = static_cast<FrameKind>(kind);
  header.view = {in.getView()};
  header.sender = {in.getSender()};
  header.receiver = {in.getReceiver()};
  header.edge_sequence = in.getEdgeSequence();
  header.micro_batch = {in.getMicroBatch()};
  header.hidden = in.getHidden();
  const auto refusal = in.getRefusal();
  if (refusal.size() > kRefusalMax) return over_limit("refusal bytes", refusal.size(), kRefusalMax);
  header.refusal.assign(refusal.begin(), refusal.size());
  header.refusal_code = static_cast<ErrorCode>(in.getRefusalCode());
  header.refusing_stage = in.getRefusingStage();
  header.sent_unix_us = in.getSentUnixUs();
  header.exit_stage = in.getExitStage();
  return {};
}

// May throw kj::Exception where the message breaks a rule of Cap'n Proto.
Result<FrameHeader> read_header(wire::FrameHeader::Reader in, ByteSpan payload, uint64_t key) {
  if (in.getPayloadBytes() != payload.size())
    return invalid(fmt::format("{} payload bytes announced, {} arrived", in.getPayloadBytes(),
                               payload.size()));
  FrameHeader header;
  TROUPE_TRY_VOID(read_fields(in, header));
  const auto segments = in.getSegments();
  if (segments.size() > kFrameSegmentsMax)
    return over_limit("segments", segments.size(), kFrameSegmentsMax);
  header.segments.reserve(segments.size());
  for (const auto segment : segments) {
    TROUPE_TRY(FrameSegment read, read_segment(segment));
    header.segments.push_back(std::move(read));
  }
  const auto released = in.getReleased();
  if (released.size() > kReleasedMax)
    return over_limit("released sequences", released.size(), kReleasedMax);
  header.released.reserve(released.size());
  for (const uint64_t sequence : released) header.released.push_back({sequence});
  TROUPE_TRY_VOID(check_frame(header, payload.size()));
  if (digest64(payload, key) != in.getPayloadDigest())
    return invalid(fmt::format("digest of the payload ({} bytes) does not match", payload.size()));
  return header;
}

// The words of the only segment. `bytes` starts with the segment table.
Result<kj::ArrayPtr<const capnp::word>> only_segment(ByteSpan bytes) {
  if (bytes.size() < kSegmentTableBytes + kWordBytes || bytes.size() % kWordBytes != 0)
    return invalid(fmt::format("message of {} bytes, not whole words", bytes.size()));
  uint32_t table[2];
  std::memcpy(table, bytes.data(), sizeof table);
  if (table[0] != 0)
    return invalid(fmt::format("message of {} segments, allowed 1", uint64_t{table[0]} + 1));
  if (uint64_t{table[1]} * kWordBytes != bytes.size() - kSegmentTableBytes)
    return invalid(fmt::format("segment of {} words in a message of {} bytes", table[1],
                               bytes.size() - kSegmentTableBytes));
  const auto* words = reinterpret_cast<const capnp::word*>(bytes.data());
  return kj::arrayPtr(words, bytes.size() / kWordBytes);
}

Result<FrameHeader> decode_message(ByteSpan message, ByteSpan payload, uint64_t key) {
  TROUPE_TRY(const auto words, only_segment(message));
  capnp::ReaderOptions options;
  // Every word once, and the root's pointers once more: no message can make us read in circles.
  options.traversalLimitInWords = words.size() + 64;
  options.nestingLimit = kNestingMax;
  try {
    capnp::FlatArrayMessageReader reader(words, options);
    return read_header(reader.getRoot<wire::FrameHeader>(), payload, key);
  } catch (const kj::Exception& error) {
    return invalid(fmt::format("not a frame header: {}", error.getDescription().cStr()));
  } catch (const std::exception& error) {
    return invalid(fmt::format("not a frame header: {}", error.what()));
  }
}

}  // namespace

Result<SharedBuffer> encode_frame_header(const FrameHeader& header, ByteSpan payload,
                                         uint64_t key) {
  TROUPE_TRY_VOID(check_frame(header, payload.size()));
  const size_t words = words_max(header);
  if (kPrefixBytes + kSegmentTableBytes + words * kWordBytes > kFrameHeaderMax)
    return over_limit("header bytes", kPrefixBytes + kSegmentTableBytes + words * kWordBytes,
                      kFrameHeaderMax);
  try {
    capnp::MallocMessageBuilder builder(static_cast<unsigned>(words),
                                        capnp::AllocationStrategy::FIXED_SIZE);
    auto root = builder.initRoot<wire::FrameHeader>();
    write_header(root, header);
    root.setPayloadBytes(payload.size());
    root.setPayloadDigest(digest64(payload, key));
    const auto segments = builder.getSegmentsForOutput();
    TROUPE_CHECK(segments.size() == 1, "words_max() bounds every header");
    const auto bytes = segments[0].asBytes();
    SharedBuffer out = SharedBuffer::allocate(kPrefixBytes + kSegmentTableBytes + bytes.size());
    std::byte* message = out.mutable_data() + kPrefixBytes;
    const uint32_t table[2] = {0, static_cast<uint32_t>(segments[0].size())};
    std::memcpy(message, table, sizeof table);
    std::memcpy(message + sizeof table, bytes.begin(), bytes.size());
    const ByteSpan whole = out.view().subspan(kPrefixBytes);
    const Prefix prefix{kMagic, static_cast<uint32_t>(whole.size()), digest64(whole, key)};
    std::memcpy(out.mutable_data(), &prefix, sizeof prefix);
    return out;
  } catch (const kj::Exception& error) {
    return Error{ErrorCode::kInternal,
                 fmt::format("encoding a frame header: {}", error.getDescription().cStr())};
  }
}

Result<FrameHeader> decode_frame_header(ByteSpan header, ByteSpan payload, uint64_t key) {
  if (header.size() > kFrameHeaderMax)
    return over_limit("header bytes", header.size(), kFrameHeaderMax);
  if (payload.size() > kFramePayloadMax)
    return over_limit("payload bytes", payload.size(), kFramePayloadMax);
  if (header.size() < kPrefixBytes)
    return invalid(fmt::format("header of {} bytes, at least {}", header.size(), kPrefixBytes));
  Prefix prefix;
  std::memcpy(&prefix, header.data(), sizeof prefix);
  if (prefix.magic != kMagic)
    return invalid(fmt::format("frame magic {:08x}, expected {:08x}", prefix.magic, kMagic));
  const ByteSpan message = header.subspan(kPrefixBytes);
  if (prefix.message_bytes != message.size())
    return invalid(fmt::format("{} message bytes announced, {} arrived", prefix.message_bytes,
                               message.size()));
  if (digest64(message, key) != prefix.digest)
    return invalid("digest of the header does not match (damaged, or another cluster's key)");
  if (reinterpret_cast<uintptr_t>(message.data()) % kWordBytes == 0)
    return decode_message(message, payload, key);
  // Cap'n Proto reads whole words: a header that arrived unaligned is moved once.
  SharedBuffer aligned = SharedBuffer::allocate(message.size());
  std::memcpy(aligned.mutable_data(), message.data(), message.size());
  return decode_message(aligned.view(), payload, key);
}

}  // namespace troupe
