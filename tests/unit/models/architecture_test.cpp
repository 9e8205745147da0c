// Configurations that are read, and models that are refused because they could not be run exactly.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <limits>

#include "models/architecture.h"
#include "models/architectures/decoder.h"
#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

Result<ModelConfig> config_of(const Bytes& bytes) {
  const Result<GgufFile> file = GgufFile::parse(bytes);
  require_ok(file);
  return read_model_config(file.value());
}

// A model built from its parts with something added before the weights.
Bytes with(const std::function<void(GgufWriter&)>& add) {
  GgufWriter writer;
  const TinyModelOptions options = small_options();
  add_tiny_config(writer, options);
  add(writer);
  const uint32_t vocabulary = add_tiny_vocabulary(writer, options);
  add_tiny_weights(writer, options, vocabulary);
  return writer.bytes();
}

struct BadModel {
  const char* name;
  std::function<void(Bytes&)> change;
  const char* says;
};

const std::vector<BadModel>& bad_values() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr const char* kEpsilon = "llama.attention.layer_norm_rms_epsilon";
  static const std::vector<BadModel> models = {
      {"another architecture",
       [](Bytes& b) { b[after(b, "general.architecture") + 12] = std::byte{'\n'}; },
       "architecture '?lama', supported are 'llama', 'qwen2', 'qwen3'"},
      {"block_count 0", [](Bytes& b) { set_metadata<uint32_t>(b, "llama.block_count", 0); },
       "llama.block_count is 0, allowed are 1 to 4096"},
      {"block_count 1000", [](Bytes& b) { set_metadata<uint32_t>(b, "llama.block_count", 1000); },
       "tensor 'blk.2.attn_norm.weight' is missing"},
      {"block_count 2^32 - 1",
       [](Bytes& b) { set_metadata<uint32_t>(b, "llama.block_count", UINT32_MAX); },
       "is 4294967295, allowed"},
      {"block_count 1 of 2", [](Bytes& b) { set_metadata<uint32_t>(b, "llama.block_count", 1); },
       "tensor 'blk.1.attn_norm.weight' has no place"},
      {"context 0", [](Bytes& b) { set_metadata<uint32_t>(b, "llama.context_length", 0); },
       "llama.context_length is 0"},
      {"epsilon NaN", [](Bytes& b) { set_metadata(b, kEpsilon, kNan); }, "not a finite number"},
      {"epsilon 0", [](Bytes& b) { set_metadata(b, kEpsilon, 0.0F); }, "epsilon is 0"},
      {"epsilon 3", [](Bytes& b) { set_metadata(b, kEpsilon, 3.0F); }, "epsilon is 3"},
      {"hidden 0", [](Bytes& b) { set_metadata<uint32_t>(b, "llama.embedding_length", 0); },
       "embedding_length is 0"},
      {"hidden of another width",
       [](Bytes& b) { set_metadata<uint32_t>(b, "llama.embedding_length", 64); },
       "x32 (rank 2), needed"},
      {"ffn of another width",
       [](Bytes& b) { set_metadata<uint32_t>(b, "llama.feed_forward_length", 96); },
       "tensor 'blk.0.ffn_gate.weight' is 64x32 (rank 2), needed 96x32"},
      {"no heads", [](Bytes& b) { set_metadata<uint32_t>(b, "llama.attention.head_count", 0); },
       "head_count is 0"},
      {"more KV heads than heads",
       [](Bytes& b) { set_metadata<uint32_t>(b, "llama.attention.head_count_kv", 3); },
       "head_count_kv is 3, allowed are 1 to 2"},
      {"rope base infinite",
       [](Bytes& b) {
         set_metadata(b, "llama.rope.freq_base", std::numeric_limits<float>::infinity());
       },
       "not a finite number"},
      {"rope base 0", [](Bytes& b) { set_metadata(b, "llama.rope.freq_base", 0.0F); },
       "freq_base is 0"},
      {"rotary dimensions odd",
       [](Bytes& b) { set_metadata<uint32_t>(b, "llama.rope.dimension_count", 7); },
       "needed an even number"},
      {"rotary dimensions over the head",
       [](Bytes& b) { set_metadata<uint32_t>(b, "llama.rope.dimension_count", 18); },
       "allowed are 2 to 16"},
      {"bos out of range",
       [](Bytes& b) { set_metadata<uint32_t>(b, "tokenizer.ggml.bos_token_id", 100'000); },
       "bos_token_id is 100000"},
      {"eos out of range",
       [](Bytes& b) { set_metadata<uint32_t>(b, "tokenizer.ggml.eos_token_id", 100'000); },
       "eos_token_id is 100000"},
      {"a tensor is missing", [](Bytes& b) { b[after(b, "blk.1.ffn_up") - 1] = std::byte{'x'}; },
       "tensor 'blk.1.ffn_up.weight' is missing"},
      {"a norm of half precision",
       [](Bytes& b) {
         // Rank 1: the type follows the only dimension.
         overwrite<uint32_t>(b, after(b, "blk.0.attn_norm.weight") + 12, 1);
       },
       "a norm or a bias must be F32"},
  };
  return models;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(architecture)

BOOST_AUTO_TEST_CASE(reads_what_the_file_says) {
  const Result<ModelConfig> config = config_of(small_model());
  require_ok(config);
  const ModelConfig& c = config.value();
  BOOST_TEST(c.architecture == "llama");
  BOOST_TEST(c.layers == 2U);
  BOOST_TEST(c.hidden == 32U);
  BOOST_TEST(c.heads == 2U);
  BOOST_TEST(c.kv_heads == 1U);
  BOOST_TEST(c.head_dim == 16U);
  BOOST_TEST(c.ffn == 64U);
  BOOST_TEST(c.context_max == 64U);
  BOOST_TEST(c.rms_epsilon == 1e-5F);
  BOOST_TEST(c.rope_base == 10'000.0F);
  BOOST_TEST(c.rotary_dims == 16U);
  BOOST_TEST(!c.tied_head);
  TinyModelOptions tied = small_options();
  tied.tied_head = true;
  BOOST_TEST(config_of(make_tiny_model(tied).value().bytes()).value().tied_head);
}

BOOST_AUTO_TEST_CASE(a_stage_needs_its_layers_and_its_ends_only) {
  ModelConfig config = config_of(small_model()).value();
  BOOST_TEST(tensor_specs(config, {0, 2}, false, false).size() == 18U);
  BOOST_TEST(tensor_specs(config, {1, 2}, false, false).front().name == "blk.1.attn_norm.weight");
  BOOST_TEST(tensor_specs(config, {0, 1}, true, false).front().name == "token_embd.weight");
  BOOST_TEST(tensor_specs(config, {1, 2}, false, true).back().name == "output.weight");
  config.tied_head = true;  // the embedding is the head, and is listed once
  BOOST_TEST(tensor_specs(config, {0, 2}, true, true).size() == 20U);
  BOOST_TEST(tensor_specs(config, {1, 2}, false, true).front().name == "token_embd.weight");
}

BOOST_AUTO_TEST_CASE(a_file_that_contradicts_itself_is_refused) {
  for (const BadModel& bad : bad_values()) {
    BOOST_TEST_CONTEXT(bad.name) {
      Bytes bytes = small_model();
      bad.change(bytes);
      const Result<ModelConfig> config = config_of(bytes);
      BOOST_TEST(!config.ok());
      if (!config.ok()) check_refused(config.error(), bad.says);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_vocabulary_of_another_size_is_refused) {
  GgufWriter writer;
  const TinyModelOptions options = small_options();
  add_tiny_config(writer, options);
  const uint32_t vocabulary = add_tiny_vocabulary(writer, options);
  add_tiny_weights(writer, options, vocabulary + 1);
  check_refused(config_of(writer.bytes()).error(), "tokens in tokenizer.ggml.tokens");
  check_refused(config_of(with([](GgufWriter& w) { w.add_u32("llama.vocab_size", 5); })).error(),
                "llama.vocab_size is 5");
}

// A key that is missing, or holds a text where a number is needed.
BOOST_AUTO_TEST_CASE(every_needed_hyper_parameter_is_missed_by_name) {
  for (const std::string key :
       {"general.architecture", "llama.block_count", "llama.embedding_length",
        "llama.feed_forward_length", "llama.context_length", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon"}) {
    BOOST_TEST_CONTEXT(key) {
      // Under another name of the same length, which no reader knows.
      Bytes bytes = small_model();
      std::string other = key;
      std::replace(other.begin(), other.end(), '.', '_');
      std::memcpy(bytes.data() + after(bytes, key) - key.size(), other.data(), other.size());
      const Result<ModelConfig> missing = config_of(bytes);
      BOOST_REQUIRE(!missing.ok());
      BOOST_TEST((missing.error().code == ErrorCode::kNotFound));
      BOOST_TEST(missing.error().message == "metadata '" + key + "' is missing");
    }
  }
}

BOOST_AUTO_TEST_CASE(known_keys_of_another_type_are_refused_by_name) {
  // The value type follows the key; f32 and u32 are of one size.
  const auto as = [](const char* key, GgufType type) {
    Bytes bytes = small_model();
    overwrite(bytes, after(bytes, key), static_cast<uint32_t>(type));
    return config_of(bytes).error();
  };
  for (const char* key : {"llama.block_count", "llama.embedding_length", "llama.context_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.rope.dimension_count", "tokenizer.ggml.eos_token_id"})
    check_refused(as(key, GgufType::kF32),
                  std::string("'") + key + "': type f32, needed an integer");
  GgufWriter writer;
  writer.add_u32("general.architecture", 1);
  check_refused(config_of(writer.bytes()).error(), "'general.architecture': type u32, needed text");
}

BOOST_AUTO_TEST_CASE(heads_that_do_not_divide_are_refused) {
  TinyModelOptions options = small_options();
  options.heads = 8;
  options.kv_heads = 4;
  const Bytes good = make_tiny_model(options).value().bytes();
  const auto with_heads = [&](uint32_t heads, uint32_t kv_heads) {
    Bytes bytes = good;
    set_metadata(bytes, "llama.attention.head_count_kv", kv_heads);
    // The shorter key is found first, it stands before the longer.
    set_metadata(bytes, "llama.attention.head_count", heads);
    return config_of(bytes).error();
  };
  check_refused(with_heads(8, 3), "8 heads are no multiple of 3 KV heads");
  check_refused(with_heads(5, 5), "embedding length 32 is no multiple of 5 heads");
}

BOOST_AUTO_TEST_CASE(what_would_change_the_computation_is_refused) {
  const auto refused = [](const std::function<void(GgufWriter&)>& add, const char* says) {
    BOOST_TEST_CONTEXT(says) {
      const Result<ModelConfig> config = config_of(with(add));
      BOOST_TEST(!config.ok());
      if (!config.ok()) check_refused(config.error(), says);
    }
  };
  const std::vector<float> row(32, 0.0F);
  refused([&](GgufWriter& w) { w.add_floats("blk.0.attn_q.bias", 0, 32, DataType::kF32, row); },
          "biases are not supported");
  refused([&](GgufWriter& w) { w.add_floats("rope_freqs.weight", 0, 32, DataType::kF32, row); },
          "rope scaling factors");
  refused([&](GgufWriter& w) { w.add_floats("adapter", 0, 32, DataType::kF32, row); },
          "tensor 'adapter' has no place");
  refused([](GgufWriter& w) { w.add_text("llama.rope.scaling.type", "yarn"); }, "'yarn'");
  refused([](GgufWriter& w) { w.add_f32("llama.rope.scaling.factor", 2.0F); }, "scaling by 2");
  refused([](GgufWriter& w) { w.add_f32("llama.rope.scale_linear", 4.0F); }, "scaling by 4");
  refused([](GgufWriter& w) { w.add_u32("llama.expert_count", 8); }, "8 experts");
  refused([](GgufWriter& w) { w.add_bool("llama.attention.causal", false); }, "not causal");
  refused([](GgufWriter& w) { w.add_u32("llama.attention.sliding_window", 4096); },
          "'llama.attention.sliding_window' is not known");
  refused([](GgufWriter& w) { w.add_u32("llama.attention.value_length", 8); },
          "keys of 16 and values of 8");
}

// Each architecture wants its own tensors, and no other's.
BOOST_AUTO_TEST_CASE(an_architecture_is_not_run_as_another) {
  const auto as = [](const char* made, const char* said) {
    TinyModelOptions options = small_options();
    options.architecture = made;
    GgufWriter writer;
    TinyModelOptions config = options;
    config.architecture = said;
    add_tiny_config(writer, config);
    add_tiny_weights(writer, options, add_tiny_vocabulary(writer, options));
    return config_of(writer.bytes());
  };
  for (const char* name : {"llama", "qwen2", "qwen3"}) {
    const auto config = as(name, name);
    require_ok(config);
    BOOST_TEST(config.value().architecture == name);
  }
  check_refused(as("llama", "qwen2").error(), "tensor 'blk.0.attn_q.bias' is missing");
  check_refused(as("llama", "qwen3").error(), "tensor 'blk.0.attn_q_norm.weight' is missing");
  check_refused(as("qwen2", "llama").error(), "biases are not supported");
  check_refused(as("qwen2", "qwen3").error(), "biases are not supported");
  check_refused(as("qwen3", "llama").error(), "'blk.0.attn_q_norm.weight' has no place");
}

BOOST_AUTO_TEST_CASE(what_says_the_default_is_accepted) {
  const Bytes bytes = with([](GgufWriter& w) {
    w.add_text("llama.rope.scaling.type", "linear");
    w.add_f32("llama.rope.scaling.factor", 1.0F);
    w.add_u32("llama.expert_count", 0);
    w.add_bool("llama.attention.causal", true);
    w.add_u32("llama.attention.key_length", 16);
    w.add_u32("llama.attention.value_length", 16);
  });
  const Result<ModelConfig> config = config_of(bytes);
  require_ok(config);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
