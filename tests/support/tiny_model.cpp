#include "tests/support/tiny_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/digest.h"
#include "base/prng.h"

namespace troupe::test {

namespace {

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

// Pairs in byte-alphabet spelling ("Ġ" is a space), in rank order; each side is a byte or an
// earlier merge.
constexpr std::array kMerges = {
    "Ġ t",  "h e",  "i n",  "r e",  "o n",   "Ġt he", "Ġ a",    "e r",   "Ġ s",    "a t",
    "o u",  "e s",  "Ġ w",  "e n",  "i s",   "Ġ o",   "o r",    "n d",   "i t",    "Ġ c",
    "a l",  "in g", "Ġ b",  "e d",  "Ġ f",   "Ġ p",   "Ġo f",   "Ġa nd", "Ġt o",   "l l",
    "Ġ m",  "a r",  "Ġ i",  "Ġi n", "o m",   "Ġ h",   "i c",    "a s",   "Ġ d",    "l e",
    "Ġ l",  "e t",  "ou r", "Ġ y",  "Ġy ou", "o t",   "l o",    "he r",  "Ġb e",   "a n",
    "Ġ he", "Ġ n",  "Ġ e",  "v e",  "e l",   "he ll", "hell o", "Ġw or", "Ġwor l",
};

// A code point below 0x800, which is all the byte alphabet has.
std::string utf8(uint32_t code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// The byte alphabet of GPT-2 in its usual order: printable bytes stand for themselves, the others
// for U+0100 onwards.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  std::vector<uint32_t> others;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    if (printable) {
      tokens.push_back(utf8(byte));
    } else {
      others.push_back(byte);
    }
  }
  for (uint32_t i = 0; i < others.size(); ++i) tokens.push_back(utf8(256 + i));
  return tokens;
}

// Adds the merges and the token each makes.
void add_merges(std::vector<std::string>& tokens, std::vector<std::string>& merges) {
  for (const std::string_view merge : kMerges) {
    const size_t space = merge.find(' ');
    tokens.push_back(std::string(merge.substr(0, space)).append(merge.substr(space + 1)));
    merges.emplace_back(merge);
  }
}

// Uniform numbers in [-reach, reach), a stream per tensor name.
class Draws {
 public:
  Draws(uint64_t seed, std::string_view name)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        stream_(digest64(as_byte_span(name))) {}

  std::vector<float> uniform(size_t count, float reach) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      if (i % 4 == 0)
        words_ =
            philox4x32_10({static_cast<uint32_t>(i / 4), static_cast<uint32_t>(i / 4 >> 32),
                           static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                          key_);
      const float unit = static_cast<float>(words_[i % 4] >> 8) * 0x1p-24F;
      values[i] = (2.0F * unit - 1.0F) * reach;
    }
    return values;
  }

 private:
  PhiloxKey key_;
  uint64_t stream_;
  PhiloxCounter words_{};
};

// Uniform in [-sqrt(3/columns) * gain, ...): a row keeps the variance of its input, times gain
// squared.
float reach_for(size_t columns, float gain) {
  return gain * std::sqrt(3.0F / static_cast<float>(columns));
}

}  // namespace

Result<void> check_tiny_options(const TinyModelOptions& options) {
  const auto wrong = [](std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message)};
  };
  const auto within = [&](const char* name, uint32_t value, uint32_t max) -> Result<void> {
    if (value >= 1 && value <= max) return {};
    return wrong(fmt::format("{} is {}, allowed are 1 to {}", name, value, max));
  };
  TROUPE_TRY_VOID(within("layers", options.layers, 128));
  TROUPE_TRY_VOID(within("hidden", options.hidden, 8192));
  TROUPE_TRY_VOID(within("heads", options.heads, 256));
  TROUPE_TRY_VOID(within("kv heads", options.kv_heads, options.heads));
  TROUPE_TRY_VOID(within("ffn", options.ffn, 32'768));
  TROUPE_TRY_VOID(within("context", options.context, 1 << 20));
  if (options.vocabulary > 1 << 18)
    return wrong(fmt::format("vocabulary is {}, limit {}", options.vocabulary, 1 << 18));
  if (options.hidden % (2 * options.heads) != 0)
    return wrong(fmt::format("hidden {} is no multiple of twice the {} heads", options.hidden,
                             options.heads));
  if (options.heads % options.kv_heads != 0)
    return wrong(
        fmt::format("{} heads are no multiple of {} kv heads", options.heads, options.kv_heads));
  const size_t block = block_elements(options.type);
  if (options.hidden % block != 0 || options.ffn % block != 0)
    return wrong(fmt::format("hidden {} and ffn {} must be multiples of {} for type {}",
                             options.hidden, options.ffn, block, to_string(options.type)));
  return {};
}

void add_tiny_config(GgufWriter& writer, const TinyModelOptions& options) {
  const auto key = [&](const char* name) { return options.architecture + "." + name; };
  writer.add_text("general.architecture", options.architecture);
  writer.add_text("general.name",
                  fmt::format("tiny {}, seed {}", options.architecture, options.seed));
  writer.add_u32(key("block_count"), options.layers);
  writer.add_u32(key("context_length"), options.context);
  writer.add_u32(key("embedding_length"), options.hidden);
  writer.add_u32(key("feed_forward_length"), options.ffn);
  writer.add_u32(key("attention.head_count"), options.heads);
  writer.add_u32(key("attention.head_count_kv"), options.kv_heads);
  writer.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-5F);
  writer.add_f32(key("rope.freq_base"), 10'000.0F);
  writer.add_u32(key("rope.dimension_count"), options.hidden / options.heads);
}

uint32_t add_tiny_vocabulary(GgufWriter& writer, const TinyModelOptions& options) {
  constexpr int32_t kNormal = 1, kControl = 3, kUnused = 5;
  std::vector<std::string> tokens{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> kinds(tokens.size(), kControl);
  for (std::string& token : byte_tokens()) tokens.push_back(std::move(token));
  std::vector<std::string> merges;
  add_merges(tokens, merges);
  kinds.resize(tokens.size(), kNormal);
  while (tokens.size() < options.vocabulary) {
    tokens.push_back(fmt::format("<|unused {}|>", tokens.size()));
    kinds.push_back(kUnused);
  }
  writer.add_text("tokenizer.ggml.model", "gpt2");
  writer.add_text("tokenizer.ggml.pre", "smollm");
  writer.add_texts("tokenizer.ggml.tokens", tokens);
  writer.add_i32s("tokenizer.ggml.token_type", kinds);
  writer.add_texts("tokenizer.ggml.merges", merges);
  writer.add_u32("tokenizer.ggml.bos_token_id", kTinyMessageStart);
  writer.add_u32("tokenizer.ggml.eos_token_id", kTinyMessageEnd);
  writer.add_bool("tokenizer.ggml.add_bos_token", false);
  writer.add_text("tokenizer.chat_template", kChatTemplate);
  return static_cast<uint32_t>(tokens.size());
}

void add_tiny_weights(GgufWriter& writer, const TinyModelOptions& options, uint32_t vocabulary) {
  const size_t hidden = options.hidden, ffn = options.ffn;
  const size_t kv_columns = hidden / options.heads * options.kv_heads;
  const auto matrix = [&](const std::string& name, size_t rows, size_t columns, float gain) {
    Draws draws(options.seed, name);
    writer.add_floats(name, rows, columns, options.type,
                      draws.uniform(rows * columns, reach_for(columns, gain)));
  };
  const auto vector = [&](const std::string& name, size_t length, float around, float reach) {
    std::vector<float> weights = Draws(options.seed, name).uniform(length, reach);
    for (float& weight : weights) weight += around;
    writer.add_floats(name, 0, length, DataType::kF32, weights);
  };
  const auto norm = [&](const std::string& name) { vector(name, hidden, 1.0F, 0.25F); };
  const auto vocabulary_matrix = [&](const std::string& name, float reach, bool silent_specials) {
    std::vector<float> values = Draws(options.seed, name).uniform(vocabulary * hidden, reach);
    if (silent_specials) std::fill_n(values.begin(), 3 * hidden, 0.0F);
    writer.add_floats(name, vocabulary, hidden, options.type, values);
  };
  vocabulary_matrix("token_embd.weight", 1.0F, options.tied_head);
  for (uint32_t layer = 0; layer < options.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    norm(prefix + "attn_norm.weight");
    // Gains above 1 sharpen attention and let it change what the residual carries.
    matrix(prefix + "attn_q.weight", hidden, hidden, 1.5F);
    matrix(prefix + "attn_k.weight", kv_columns, hidden, 1.5F);
    matrix(prefix + "attn_v.weight", kv_columns, hidden, 1.0F);
    if (options.architecture == "qwen2") {
      vector(prefix + "attn_q.bias", hidden, 0.0F, 1.0F);
      vector(prefix + "attn_k.bias", kv_columns, 0.0F, 1.0F);
      vector(prefix + "attn_v.bias", kv_columns, 0.0F, 1.0F);
    }
    if (options.architecture == "qwen3") {
      vector(prefix + "attn_q_norm.weight", hidden / options.heads, 1.5F, 0.5F);
      vector(prefix + "attn_k_norm.weight", hidden / options.heads, 1.5F, 0.5F);
    }
    matrix(prefix + "attn_output.weight", hidden, hidden, 1.0F);
    norm(prefix + "ffn_norm.weight");
    matrix(prefix + "ffn_gate.weight", ffn, hidden, 1.5F);
    matrix(prefix + "ffn_up.weight", ffn, hidden, 1.5F);
    matrix(prefix + "ffn_down.weight", hidden, ffn, 1.0F);
  }
  norm("output_norm.weight");
  if (!options.tied_head) vocabulary_matrix("output.weight", reach_for(hidden, 2.0F), true);
}

Result<GgufWriter> make_tiny_model(const TinyModelOptions& options) {
  TROUPE_TRY_VOID(check_tiny_options(options));
  GgufWriter writer;
  add_tiny_config(writer, options);
  const uint32_t vocabulary = add_tiny_vocabulary(writer, options);
  add_tiny_weights(writer, options, vocabulary);
  return writer;
}

Result<void> write_tiny_model(const TinyModelOptions& options, const std::string& path) {
  TROUPE_TRY(const GgufWriter writer, make_tiny_model(options));
  return writer.write(path);
}

}  // namespace troupe::test
