// make_tiny_model: writes a tiny generated model (tests/support/tiny_model.h) for tests and
// for trying out.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cctype>
#include <cstdio>
#include <map>
#include <string>

#include "tests/support/tiny_model.h"

int main(int argc, char** argv) {
  using troupe::DataType;
  std::map<std::string, DataType> types;  // by lower-case name
  for (const DataType type : troupe::kDataTypes) {
    std::string name = troupe::to_string(type);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    types[name] = type;
  }
  troupe::test::TinyModelOptions options;
  std::string type = "q4_1", path;
  CLI::App app("Writes a tiny model with random weights: the same options give the same file.");
  app.add_option("--architecture", options.architecture, "What it computes")
      ->capture_default_str()
      ->check(CLI::IsMember({"llama", "qwen2", "qwen3"}));
  app.add_option("--layers", options.layers, "Layers")->capture_default_str();
  app.add_option("--hidden", options.hidden, "Width of the residual")->capture_default_str();
  app.add_option("--heads", options.heads, "Attention heads")->capture_default_str();
  app.add_option("--kv-heads", options.kv_heads, "Key and value heads")->capture_default_str();
  app.add_option("--ffn", options.ffn, "Width of the feed-forward part")->capture_default_str();
  app.add_option("--context", options.context, "Positions")->capture_default_str();
  app.add_option("--vocabulary", options.vocabulary, "At least so many tokens (0: what there is)");
  app.add_option("--type", type, "Type of the matrices")
      ->capture_default_str()
      ->check(CLI::IsMember(types));
  app.add_flag("--tied-head", options.tied_head, "Use the token embedding as the head");
  app.add_option("--seed", options.seed, "Seed of the weights")->capture_default_str();
  app.add_option("OUT", path, "File to write")->required();
  CLI11_PARSE(app, argc, argv);
  options.type = types.at(type);
  const troupe::Result<void> written = troupe::test::write_tiny_model(options, path);
  if (!written.ok()) {
    std::fprintf(stderr, "make_tiny_model: %s\n", written.error().message.c_str());
    return 1;
  }
  return 0;
}
