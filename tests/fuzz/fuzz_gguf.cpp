// No bytes make the readers of a model file crash, hang or take memory that the file does not have;
// and what they accept can be used: every tensor's bytes lie in the file, every token has a text.
#include <string>

#include "models/architecture.h"
#include "models/chat_template.h"
#include "models/gguf.h"
#include "models/tokenizer.h"
#include "tests/fuzz/mutation_driver.h"
#include "tests/support/tiny_model.h"

namespace {

using namespace troupe;
using fuzz::require;

void use_entries(const GgufFile& file) {
  for (const GgufEntry& entry : file.entries()) {
    require(file.value(entry.key) == &entry.value, "a key finds its value");
    (void)file.unsigned_integer(entry.key);
    (void)file.number(entry.key);
    (void)file.boolean(entry.key);
    (void)file.text(entry.key);
    (void)file.texts(entry.key);
    (void)file.integers(entry.key);
    (void)file.numbers(entry.key);
  }
}

void use_tensors(const GgufFile& file) {
  const ByteSpan all = file.bytes();
  unsigned sum = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    require(!tensor.bytes.empty() && tensor.bytes.data() >= all.data() &&
                tensor.bytes.data() + tensor.bytes.size() <= all.data() + all.size(),
            "a tensor lies in the file");
    sum += std::to_integer<unsigned>(tensor.bytes.front()) +
           std::to_integer<unsigned>(tensor.bytes.back());
    const Result<WeightSource> source = tensor.weight_source();
    if (!source.ok()) continue;
    const WeightSource& weights = source.value();
    require(weights.rows * (weights.columns / block_elements(weights.type)) *
                    block_bytes(weights.type) ==
                weights.bytes.size(),
            "a weight's bytes are what its shape needs");
  }
  // Keeps the reads above: what they found decides nothing.
  require(sum <= 510U * file.tensors().size(), "a byte is at most 255");
}

void check_error(const Error& error) {
  require(!error.message.empty() && error.message.find('\n') == std::string::npos,
          "an error is one line");
}

void use_tokenizer(const GgufFile& file) {
  const Result<Tokenizer> tokenizer = Tokenizer::from(file);
  if (!tokenizer.ok()) return check_error(tokenizer.error());
  for (uint32_t token = 0; token < tokenizer.value().vocabulary(); ++token)
    (void)tokenizer.value().piece(token);
  const Result<std::vector<uint32_t>> tokens =
      tokenizer.value().encode("hello world 12<|im_end|>", {.parse_special = true});
  if (!tokens.ok()) return check_error(tokens.error());
  for (const uint32_t token : tokens.value())
    require(token < tokenizer.value().vocabulary(), "a token is in the vocabulary");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<GgufFile> file = GgufFile::parse({reinterpret_cast<const std::byte*>(data), size});
  if (!file.ok()) {
    check_error(file.error());
    return 0;
  }
  use_entries(file.value());
  use_tensors(file.value());
  use_tokenizer(file.value());
  const Result<ModelConfig> config = read_model_config(file.value());
  if (!config.ok()) check_error(config.error());
  const Result<ChatTemplate> chat = ChatTemplate::from(file.value());
  if (!chat.ok()) check_error(chat.error());
  return 0;
}

#ifndef TROUPE_LIBFUZZER
int main(int argc, char** argv) {
  const auto bytes_of = [](const test::TinyModelOptions& options) {
    const std::vector<std::byte> bytes = test::make_tiny_model(options).value().bytes();
    const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
    return fuzz::Input(first, first + bytes.size());
  };
  test::TinyModelOptions options{
      .layers = 1, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 32, .context = 16};
  const fuzz::Input quantised = bytes_of(options);
  options.type = DataType::kF16;
  options.tied_head = true;
  // The header ends where the first tensor lies; in the weights a change means nothing to the
  // readers.
  const GgufFile file = GgufFile::parse(std::as_bytes(std::span(quantised))).value();
  const auto header = static_cast<size_t>(file.tensors()[0].bytes.data() - file.bytes().data());
  return fuzz::run(argc, argv, {quantised, bytes_of(options)}, header);
}
#endif
