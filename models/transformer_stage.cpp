#include "models/transformer_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/log.h"
#include "models/forward.h"
#include "models/kv_cache.h"
#include "models/kv_segments.h"
#include "models/sampler.h"
#include "models/weights.h"

namespace troupe {

namespace {

template <class... Args>
Error invalid_frame(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kInvalidFrame, fmt::format(format, std::forward<Args>(args)...)};
}

class TransformerStage final : public StageProgram {
 public:
  TransformerStage(TransformerStageOptions options, StageWeights weights, KvCache cache)
      : config_(std::move(options.config)),
        part_(part_of(options.layers, config_)),
        rows_max_(options.rows_max),
        operators_(std::move(options.operators)),
        weights_(std::move(weights)),
        cache_(std::move(cache)),
        forward_(config_, *operators_, rows_max_, part_.last),
        checks_({.positions_max = config_.context_max, .blocks = cache_.blocks()}) {
    if (part_.last) last_hidden_ = SharedBuffer::allocate(hidden_bytes(rows_max_));
  }

  static StagePart part_of(const LayerRange& layers, const ModelConfig& config) {
    return {.layers = layers, .first = layers.first == 0, .last = layers.last == config.layers};
  }

  Result<StageOutput> run(const MicroBatch& batch, std::span<const uint32_t> tokens,
                          const SharedBuffer& hidden) override;
  void reset() override { cache_.clear(); }
  uint32_t kv_length(SequenceId sequence) const override { return cache_.length(sequence); }
  std::vector<SequenceHolding> holdings() const override { return cache_.holdings(); }
  uint32_t kv_row_bytes() const override { return cache_.row_bytes(); }
  Result<SharedBuffer> read_kv(std::span<const Segment> segments) const override;
  Result<void> write_kv(std::span<const Segment> segments, ByteSpan rows) override;
  StageMemory memory() const override {
    return {.weight_bytes = weights_.bytes,
            .kv_bytes = cache_.bytes(),
            .scratch_bytes = forward_.scratch_bytes() + last_hidden_.size()};
  }

 private:
  size_t hidden_bytes(size_t rows) const { return rows * config_.hidden * sizeof(float); }

  Result<void> check_sampled(const MicroBatch& batch) const;
  Result<void> check_input(size_t rows, std::span<const uint32_t> tokens,
                           const SharedBuffer& hidden) const;
  Result<void> check_gaps(std::span<const Segment> segments) const;
  uint32_t rows_held(const Segment& segment) const;

  void place_rows(const MicroBatch& batch);
  void run_layers(TensorView<float> x, std::span<const uint32_t> tokens,
                  const SharedBuffer& hidden);
  Result<std::vector<SampledToken>> sample(const MicroBatch& batch, TensorView<const float> x);
  void commit(std::span<const Segment> segments);

  const ModelConfig config_;
  const StagePart part_;
  const uint32_t rows_max_;
  const std::shared_ptr<Operators> operators_;
  const StageWeights weights_;
  KvCache cache_;
  Forward forward_;
  Sampler sampler_;
  SharedBuffer last_hidden_;  // the last stage's rows; the others write into what they send

  // Of the micro-batch that runs; kept to keep their memory.
  std::vector<RowPlace> places_;
  std::vector<RowRange> unstored_;
  mutable SegmentChecks checks_;
};

Result<StageOutput> TransformerStage::run(const MicroBatch& batch, std::span<const uint32_t> tokens,
                                          const SharedBuffer& hidden) {
  TROUPE_TRY(const size_t rows, checks_.check(batch.segments, rows_max_));
  TROUPE_TRY_VOID(check_sampled(batch));
  TROUPE_TRY_VOID(check_input(rows, tokens, hidden));
  TROUPE_TRY_VOID(check_gaps(batch.segments));
  StageOutput output;
  if (rows > 0) {
    place_rows(batch);
    if (!part_.last) output.hidden = SharedBuffer::allocate(hidden_bytes(rows));
    SharedBuffer& memory = part_.last ? last_hidden_ : output.hidden;
    const TensorView<float> x{memory.as_mutable<float>().data(), rows, config_.hidden};
    run_layers(x, tokens, hidden);
    if (part_.last) {
      TROUPE_TRY(output.sampled, sample(batch, x));
    }
  }
  commit(batch.segments);
  for (const SequenceId sequence : batch.released) cache_.forget(sequence);
  return output;
}

Result<void> TransformerStage::check_sampled(const MicroBatch& batch) const {
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    if (!batch.segments[i].sample) continue;
    const Result<void> sampling = check_sampling(batch.segments[i].sampling);
    if (!sampling.ok()) return invalid_frame("segment {}: {}", i, sampling.error().message);
  }
  return {};
}

Result<void> TransformerStage::check_input(size_t rows, std::span<const uint32_t> tokens,
                                           const SharedBuffer& hidden) const {
  const size_t tokens_wanted = part_.first ? rows : 0;
  const size_t bytes_wanted = part_.first ? 0 : hidden_bytes(rows);
  if (tokens.size() != tokens_wanted)
    return invalid_frame("{} tokens for {} rows of {} stage; {} are needed", tokens.size(), rows,
                         part_.first ? "the first" : "a later", tokens_wanted);
  if (hidden.size() != bytes_wanted)
    return invalid_frame("{} bytes of hidden values for {} rows of {}; {} are needed",
                         hidden.size(), rows, config_.hidden, bytes_wanted);
  for (size_t r = 0; r < tokens.size(); ++r)
    if (tokens[r] >= config_.vocabulary)
      return invalid_frame("row {} holds token {}; the vocabulary has {}", r, tokens[r],
                           config_.vocabulary);
  return {};
}

Result<void> TransformerStage::check_gaps(std::span<const Segment> segments) const {
  for (size_t i = 0; i < segments.size(); ++i) {
    if (SegmentChecks::continues(segments, i)) continue;
    const Segment& segment = segments[i];
    const uint32_t held = cache_.length_under(segment.sequence, segment.blocks);
    if (segment.position > held)
      return Error{
          ErrorCode::kConflict,
          fmt::format("sequence {} goes on at position {}, but layers [{}, {}) hold {} positions",
                      to_string(segment.sequence), segment.position, part_.layers.first,
                      part_.layers.last, held)};
  }
  return {};
}

// Of its rows, from the first on. One that goes on with a sequence may begin behind what is held.
uint32_t TransformerStage::rows_held(const Segment& segment) const {
  const uint32_t held = cache_.length_under(segment.sequence, segment.blocks);
  return held > segment.position ? std::min(segment.rows, held - segment.position) : 0;
}

// From here on the micro-batch is known to be sound. What is held is asked for before any table is
// claimed: a claim may take a block from a later segment's sequence, whose table in this
// micro-batch shows the same change.
void TransformerStage::place_rows(const MicroBatch& batch) {
  places_.clear();
  unstored_.clear();
  for (const Segment& segment : batch.segments) {
    const size_t again = rows_held(segment);
    const size_t first = places_.size() + again;
    const size_t count = segment.rows - again;
    if (!unstored_.empty() && unstored_.back().first + unstored_.back().count == first) {
      unstored_.back().count += count;
    } else if (count > 0) {
      unstored_.push_back({first, count});
    }
    for (uint32_t r = 0; r < segment.rows; ++r)
      places_.push_back({segment.position + r, segment.blocks});
  }
  for (const Segment& segment : batch.segments) cache_.claim(segment.sequence, segment.blocks);
}

void TransformerStage::run_layers(TensorView<float> x, std::span<const uint32_t> tokens,
                                  const SharedBuffer& hidden) {
  if (part_.first) {
    operators_->embed(x, tokens, *weights_.embedding);
  } else {
    std::memcpy(x.data, hidden.data(), hidden.size());
  }
  const ForwardRows rows{.places = places_, .unstored = unstored_};
  for (uint32_t i = 0; i < part_.layers.count(); ++i)
    forward_.layer(x, weights_.layers[i], cache_.layer(i), rows);
}

Result<std::vector<SampledToken>> TransformerStage::sample(const MicroBatch& batch,
                                                           TensorView<const float> x) {
  std::vector<const Segment*> wanted;
  std::vector<size_t> last_rows;
  size_t end = 0;
  for (const Segment& segment : batch.segments) {
    end += segment.rows;
    if (!segment.sample) continue;
    wanted.push_back(&segment);
    last_rows.push_back(end - 1);
  }
  std::vector<SampledToken> sampled;
  sampled.reserve(wanted.size());
  for (size_t from = 0; from < wanted.size(); from += Forward::kHeadRowsMax) {
    const size_t count = std::min(Forward::kHeadRowsMax, wanted.size() - from);
    const TensorView<const float> logits =
        forward_.head(x, std::span(last_rows).subspan(from, count), weights_);
    for (size_t i = 0; i < count; ++i) {
      const Segment& segment = *wanted[from + i];
      const uint32_t position = segment.position + segment.rows;
      const auto token = sampler_.sample(logits.row(i), segment.sampling, position);
      if (!token.ok())
        return with_context(token.error(), fmt::format("sequence {} at position {}",
                                                       to_string(segment.sequence), position));
      sampled.push_back({.sequence = segment.sequence,
                         .position = position,
                         .token = token.value(),
                         .logits_digest = digest64(std::as_bytes(logits.row(i)))});
    }
  }
  return sampled;
}

void TransformerStage::commit(std::span<const Segment> segments) {
  for (const Segment& segment : segments)
    cache_.filled(segment.sequence, segment.position + segment.rows);
}

Result<SharedBuffer> TransformerStage::read_kv(std::span<const Segment> segments) const {
  TROUPE_TRY(const size_t rows, checks_.check(segments, kStageRowsMax));
  for (const Segment& segment : segments) {
    const uint32_t held = cache_.length_under(segment.sequence, segment.blocks);
    const uint64_t end = uint64_t{segment.position} + segment.rows;
    if (end > held)
      return Error{ErrorCode::kConflict,
                   fmt::format("rows [{}, {}) of sequence {} are wanted, {} are held",
                               segment.position, end, to_string(segment.sequence), held)};
  }
  SharedBuffer buffer = SharedBuffer::allocate(rows * cache_.row_bytes());
  std::byte* out = buffer.mutable_data();
  for (const Segment& segment : segments) {
    const size_t bytes = segment.rows * cache_.row_bytes();
    cache_.read_rows(segment.blocks, segment.position, {out, bytes});
    if (const auto damaged = cache_.damaged_row(segment.blocks, segment.position, {out, bytes}))
      return Error{ErrorCode::kInternal,
                   fmt::format("row {} of sequence {} is not what was written: memory is damaged",
                               *damaged, to_string(segment.sequence))};
    out += bytes;
  }
  return buffer;
}

Result<void> TransformerStage::write_kv(std::span<const Segment> segments, ByteSpan rows) {
  TROUPE_TRY(const size_t count, checks_.check(segments, kStageRowsMax));
  if (rows.size() != count * cache_.row_bytes())
    return invalid_frame("{} bytes of keys and values for {} rows of {} bytes; {} are needed",
                         rows.size(), count, cache_.row_bytes(), count * cache_.row_bytes());
  TROUPE_TRY_VOID(check_gaps(segments));
  // As in place_rows(): what is held is asked for before any table is claimed.
  std::vector<uint32_t> held;
  held.reserve(segments.size());
  for (const Segment& segment : segments) held.push_back(rows_held(segment));
  for (const Segment& segment : segments) cache_.claim(segment.sequence, segment.blocks);
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const size_t again = held[i];
    const size_t bytes = segment.rows * cache_.row_bytes();
    cache_.write_rows(segment.blocks, segment.position + static_cast<uint32_t>(again),
                      rows.first(bytes).subspan(again * cache_.row_bytes()));
    rows = rows.subspan(bytes);
  }
  commit(segments);
  return {};
}

}  // namespace

Result<std::unique_ptr<StageProgram>> make_transformer_stage(TransformerStageOptions options) {
  TROUPE_CHECK(options.operators != nullptr, "operators are chosen before stages are made");
  const ModelConfig& config = options.config;
  if (options.rows_max == 0 || options.rows_max > kStageRowsMax)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("rows_max {}; allowed are 1 to {}", options.rows_max, kStageRowsMax)};
  const StagePart part = TransformerStage::part_of(options.layers, config);
  // The cache first: it is cheap to refuse.
  const uint32_t layers = options.layers.last > options.layers.first ? options.layers.count() : 0;
  const KvShape shape{.layers = layers,
                      .kv_heads = config.kv_heads,
                      .head_dim = config.head_dim,
                      .blocks = options.kv_blocks};
  TROUPE_TRY(KvCache cache, options.kept.descriptor < 0 ? KvCache::allocate(shape)
                                                        : KvCache::open(shape, options.kept));
  if (cache.blocks_rejected() > 0)
    log_warning("stage", "{} blocks of kept memory do not prove themselves: computed again",
                cache.blocks_rejected());
  TROUPE_TRY(StageWeights weights,
             load_stage_weights(options.file, config, part, *options.operators));
  return std::unique_ptr<StageProgram>(
      std::make_unique<TransformerStage>(std::move(options), std::move(weights), std::move(cache)));
}

}  // namespace troupe
