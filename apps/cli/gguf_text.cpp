#include "apps/cli/gguf_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/terminal.h"

namespace troupe::cli {
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

}  // namespace

std::string metadata_text(const GgufFile& file) {
  constexpr uint64_t kElements = 8;
  constexpr size_t kLine = 160;
  std::string text;
  for (const GgufEntry& entry : file.entries()) {
    const GgufValue& value = entry.value;
    std::string type = to_string(value.type);
    Json shown = json_of(value, kElements);
    if (value.type == GgufType::kArray) {
      type = fmt::format("{} {}", value.array.count, to_string(value.array.element));
      shown = shown["values"];
      if (value.array.count > kElements) shown.push_back("...");
    }
    text += fmt::format("  {}: {} {}\n", printable(std::string(entry.key)), type,
                        printable(one_line(shown, kLine)));
  }
  return text;
}

std::string tensors_text(const GgufFile& file) {
  Table table({{"tensor"}, {"type"}, {"shape", true}, {"bytes", true}});
  for (const GgufTensor& tensor : file.tensors())
    table.add({{printable(std::string(tensor.name))},
               {ggml_type_name(tensor.type)},
               {shape_of(tensor), true},
               {std::to_string(tensor.bytes.size()), true}});
  return table.text("  ");
}

Json metadata_json(const GgufFile& file) {
  Json metadata = Json::object();
  for (const GgufEntry& entry : file.entries())
    metadata[std::string(entry.key)] = {{"type", to_string(entry.value.type)},
                                        {"value", json_of(entry.value, UINT64_MAX)}};
  return metadata;
}

Json tensors_json(const GgufFile& file) {
  Json tensors = Json::array();
  for (const GgufTensor& tensor : file.tensors())
    tensors.push_back(
        {{"name", std::string(tensor.name)},
         {"type", ggml_type_name(tensor.type)},
         {"shape", std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.begin() + tensor.rank)},
         {"offset", tensor.bytes.data() - file.part_bytes(tensor.part).data()},
         {"part", tensor.part},
         {"bytes", tensor.bytes.size()}});
  return tensors;
}

}  // namespace troupe::cli
