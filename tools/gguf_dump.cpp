// gguf_dump: prints what a GGUF file says: metadata and tensors, for people or as JSON.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "models/gguf.h"

namespace troupe {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const GgufValue& value, uint64_t array_max);

Json json_of(const GgufArray& array, uint64_t array_max) {
  Json elements = Json::array();
  const uint64_t shown = std::min(array.count, array_max);
  for (uint64_t i = 0; i < shown; ++i) {
    if (array.element == GgufType::kArray) {
      elements.push_back(json_of(array.arrays[static_cast<size_t>(i)], array_max));
    } else {
      elements.push_back(json_of(element_of(array, i), array_max));
    }
  }
  return {{"element", to_string(array.element)}, {"count", array.count}, {"values", elements}};
}

Json json_of(const GgufValue& value, uint64_t array_max) {
  switch (value.type) {
    case GgufType::kText:
      return std::string(value.text);
    case GgufType::kArray:
      return json_of(value.array, array_max);
    case GgufType::kBool:
      return value.boolean().value();
    case GgufType::kF32:
    case GgufType::kF64:
      return value.number().value();
    case GgufType::kU64:
      return value.unsigned_integer().value();
    default:
      return value.signed_integer().value();
  }
}

// One line; long texts and arrays are cut. Bytes that are not UTF-8 become U+FFFD.
std::string one_line(const Json& json, size_t bytes_max) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > bytes_max) {
    size_t end = bytes_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
    text += "…";
  }
  return text;
}

std::string shape_of(const GgufTensor& tensor) {
  return fmt::format("{}",
                     fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, "x"));
}

void print_for_people(const GgufFile& file) {
  constexpr uint64_t kElements = 8;
  constexpr size_t kLine = 160;
  fmt::print("GGUF version {}, {} metadata keys, {} tensors, {} bytes, content {}\n\n",
             file.version(), file.entries().size(), file.tensors().size(), file.total_bytes(),
             file.content_id());
  for (const GgufEntry& entry : file.entries()) {
    const GgufValue& value = entry.value;
    if (value.type == GgufType::kArray) {
      Json elements = json_of(value, kElements)["values"];
      if (value.array.count > kElements) elements.push_back("...");
      fmt::print("{}: {} {} {}\n", entry.key, value.array.count, to_string(value.array.element),
                 one_line(elements, kLine));
    } else {
      fmt::print("{}: {} {}\n", entry.key, to_string(value.type),
                 one_line(json_of(value, kElements), kLine));
    }
  }
  fmt::print("\n");
  for (const GgufTensor& tensor : file.tensors())
    fmt::print("{:<32} {:<6} {:>16} {:>12} bytes\n", tensor.name, ggml_type_name(tensor.type),
               shape_of(tensor), tensor.bytes.size());
}

void print_json(const GgufFile& file) {
  Json metadata = Json::object(), tensors = Json::array();
  for (const GgufEntry& entry : file.entries())
    metadata[std::string(entry.key)] = {{"type", to_string(entry.value.type)},
                                        {"value", json_of(entry.value, UINT64_MAX)}};
  for (const GgufTensor& tensor : file.tensors())
    tensors.push_back(
        {{"name", std::string(tensor.name)},
         {"type", ggml_type_name(tensor.type)},
         {"shape", std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.begin() + tensor.rank)},
         {"offset", tensor.bytes.data() - file.part_bytes(tensor.part).data()},
         {"part", tensor.part},
         {"bytes", tensor.bytes.size()}});
  const Json all = {{"version", file.version()},   {"alignment", file.alignment()},
                    {"bytes", file.total_bytes()}, {"content", file.content_id()},
                    {"metadata", metadata},        {"tensors", tensors}};
  fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  std::string path;
  bool json = false;
  CLI::App app("Prints the metadata and tensors of a GGUF file.");
  app.add_flag("--json", json, "All of it as JSON, arrays in full");
  app.add_option("FILE", path, "File to read")->required();
  CLI11_PARSE(app, argc, argv);
  const troupe::Result<troupe::GgufFile> file = troupe::GgufFile::open(path);
  if (!file.ok()) {
    std::fprintf(stderr, "gguf_dump: %s\n", file.error().message.c_str());
    return 1;
  }
  if (json) {
    troupe::print_json(file.value());
  } else {
    troupe::print_for_people(file.value());
  }
  return 0;
}
