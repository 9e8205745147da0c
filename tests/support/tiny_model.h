// Tiny models, generated: small enough for every test, complete enough to be served. Weights
// are a function of the options alone (Philox draws and basic float arithmetic), so a file is the
// same bytes on every machine.
//
// The vocabulary: three specials (<|endoftext|> 0, <|im_start|> 1, <|im_end|> 2), the 256 bytes
// (token 3 + place in the byte alphabet's order), then merges of common English pairs. The
// specials' rows of the head are zero, so that greedy text never ends by itself: their logit is 0
// where others are spread widely around it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/tensor.h"
#include "tests/support/gguf_writer.h"

namespace troupe::test {

struct TinyModelOptions {
  uint32_t layers = 6;
  uint32_t hidden = 64;  // a multiple of the type's block, and of 2 * heads
  uint32_t heads = 4;
  uint32_t kv_heads = 2;  // divides heads
  uint32_t ffn = 128;     // a multiple of the type's block
  uint32_t context = 256;
  uint32_t vocabulary =
      0;  // 0: as many tokens as the generated vocabulary has; more: filled up with unused ones
  DataType type = DataType::kQ4_1;
  bool tied_head = false;
  uint64_t seed = 1;
  std::string architecture = "llama";  // or "qwen2", "qwen3"
};

inline constexpr uint32_t kTinyEndOfText = 0;
inline constexpr uint32_t kTinyMessageStart = 1;
inline constexpr uint32_t kTinyMessageEnd = 2;

// Errors: kInvalidArgument if the options make no model.
Result<GgufWriter> make_tiny_model(const TinyModelOptions& options);
Result<void> write_tiny_model(const TinyModelOptions& options, const std::string& path);

// The parts, for tests that build a file with one thing wrong.
Result<void> check_tiny_options(const TinyModelOptions& options);
void add_tiny_config(GgufWriter& writer, const TinyModelOptions& options);
uint32_t add_tiny_vocabulary(GgufWriter& writer, const TinyModelOptions& options);  // its tokens
void add_tiny_weights(GgufWriter& writer, const TinyModelOptions& options, uint32_t vocabulary);

}  // namespace troupe::test
