// No bytes make the readers of a model file crash, hang or take memory that the file does not have;
// and what they accept can be used: every tensor's bytes lie in the file, every token has a text.
#include <array>
#include <string>

#include "models/architecture.h"
#include "models/chat_template.h"
#include "models/finite_weights.h"
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
    const Result<void> finite = check_finite_weights(weights);
    if (!finite.ok()) require(!finite.error().message.empty(), "an error says something");
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

// A part of a model in two parts, with a tensor.
std::vector<std::byte> part_of_two(uint32_t number, const char* tensor) {
  test::GgufWriter writer;
  writer.add_u32("split.no", number);
  writer.add_u32("split.count", 2);
  writer.add_u32("split.tensors.count", 2);
  writer.add_floats(tensor, 0, 32, DataType::kQ5_0, std::vector<float>(32, 1.0F));
  return writer.bytes();
}

void use_as_a_part(ByteSpan input) {
  static const std::vector<std::byte> first = part_of_two(0, "a"), second = part_of_two(1, "b");
  for (const std::array<ByteSpan, 2>& parts :
       {std::array<ByteSpan, 2>{input, second}, std::array<ByteSpan, 2>{first, input}}) {
    const Result<GgufFile> file = GgufFile::parse_parts(parts);
    if (!file.ok()) {
      check_error(file.error());
      continue;
    }
    require(file.value().parts() == 2, "two parts are one model");
    for (const GgufTensor& tensor : file.value().tensors()) {
      const ByteSpan part = file.value().part_bytes(tensor.part);
      require(tensor.bytes.data() >= part.data() &&
                  tensor.bytes.data() + tensor.bytes.size() <= part.data() + part.size(),
              "a tensor lies in its part");
      require(file.value().find(tensor.name) == &tensor, "a name finds its tensor");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan input{reinterpret_cast<const std::byte*>(data), size};
  use_as_a_part(input);
  const Result<GgufFile> file = GgufFile::parse(input);
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
  const auto input_of = [](const std::vector<std::byte>& bytes) {
    const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
    return fuzz::Input(first, first + bytes.size());
  };
  const auto bytes_of = [&](const test::TinyModelOptions& options) {
    return input_of(test::make_tiny_model(options).value().bytes());
  };
  test::TinyModelOptions options{
      .layers = 1, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 32, .context = 16};
  const fuzz::Input quantised = bytes_of(options);
  std::vector<fuzz::Input> starts{quantised, input_of(part_of_two(0, "a")),
                                  input_of(part_of_two(1, "b"))};
  options.type = DataType::kF16;
  options.tied_head = true;
  starts.push_back(bytes_of(options));
  // A tensor of each type; a model of each would be mostly weights.
  test::GgufWriter all_types;
  for (const DataType type : kDataTypes)
    all_types.add_floats(to_string(type), 2, 256, type, std::vector<float>(512, 0.5F));
  starts.push_back(input_of(all_types.bytes()));
  // The header ends where the first tensor lies; in the weights a change means nothing to the
  // readers.
  const GgufFile file = GgufFile::parse(std::as_bytes(std::span(quantised))).value();
  const auto header = static_cast<size_t>(file.tensors()[0].bytes.data() - file.bytes().data());
  return fuzz::run(argc, argv, starts, header);
}
#endif
