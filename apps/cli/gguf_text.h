// What a GGUF file says, for people and as JSON: metadata and tensors. Texts for people are safe to
// print: long ones are cut, control characters are made visible.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "models/gguf.h"

namespace troupe::cli {

// One line a key; of arrays the first elements.
std::string metadata_text(const GgufFile& file);
std::string tensors_text(const GgufFile& file);
// Everything, arrays in full: {key: {type, value}}.
nlohmann::ordered_json metadata_json(const GgufFile& file);
// [{name, type, shape, offset, part, bytes}], in the file's order.
nlohmann::ordered_json tensors_json(const GgufFile& file);

}  // namespace troupe::cli
