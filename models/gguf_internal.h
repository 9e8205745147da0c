// What the GGUF reader's own files share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/gguf.h"

namespace troupe {

struct GgmlTypeLayout {
  uint32_t type;
  const char* name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

// Nothing for a type that is not read.
std::optional<GgmlTypeLayout> ggml_type_layout(uint32_t type);

// What to say of such a type: its name where it has one, its number, and what is supported.
std::string refuse_ggml_type(uint32_t type);

struct GgufPart {
  std::optional<MappedFile> mapping;  // none if the bytes came from memory
  ByteSpan bytes;
};

// What one file says, or after joining all parts of a split one: then everything but the tensors is
// the first part's.
struct GgufFile::Contents {
  std::vector<GgufPart> parts;
  uint32_t version = 0;
  uint64_t alignment = 32;
  std::vector<GgufEntry> entries;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> entry_of, tensor_of;  // indices
};

// The steps of GgufFile::open() and parse().
class GgufReading {
 public:
  using Contents = std::shared_ptr<GgufFile::Contents>;
  // One file, whether it is a part or not (gguf.cpp).
  static Result<Contents> read(ByteSpan bytes, std::optional<MappedFile> mapping);
  // The same of a path; messages start with it.
  static Result<Contents> read(const std::string& path);

  // The model that a file read from `path` begins; opens its other parts (gguf_split.cpp).
  static Result<GgufFile> complete(Contents first, const std::string& path);
  // The model that these parts are together.
  static Result<GgufFile> join(std::vector<Contents> parts);

 private:
  // Moves a part's tensors and mapping to those before it.
  static Result<void> add_part(GgufFile::Contents& all, GgufFile::Contents& part);
};

}  // namespace troupe
