// Split models: gguf-split writes PREFIX-00001-of-0000N.gguf and so on. Every part is a GGUF file
// with keys split.no (from 0), split.count and split.tensors.count (of all parts together); the
// first holds the metadata, each its own tensors (llama.cpp, tools/gguf-split). A model with a part
// missing, doubled or of another model is refused: each part says who it is.
#include <fmt/format.h>

#include "models/gguf.h"
#include "models/gguf_internal.h"

namespace troupe {

namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidFile, std::move(message)};
}

struct SplitKeys {
  uint64_t number = 0;   // from 0
  uint64_t count = 1;    // 1: not split
  uint64_t tensors = 0;  // of all parts
};

Result<SplitKeys> read_split_keys(const GgufFile& file) {
  SplitKeys keys;
  keys.tensors = file.tensors().size();
  if (!file.has("split.count")) return keys;
  TROUPE_TRY(const uint64_t count, file.unsigned_integer("split.count"));
  if (count > kGgufPartsMax)
    return invalid(fmt::format("split.count {}, limit {}", count, kGgufPartsMax));
  if (count <= 1) return keys;  // merged again, or never cut
  keys.count = count;
  TROUPE_TRY(keys.number, file.unsigned_integer("split.no"));
  if (keys.number >= count)
    return invalid(fmt::format("split.no {} of split.count {}, allowed are 0 to {}", keys.number,
                               count, count - 1));
  TROUPE_TRY(keys.tensors, file.unsigned_integer("split.tensors.count"));
  if (keys.tensors > kGgufTensorsMax)
    return invalid(fmt::format("split.tensors.count {}, limit {}", keys.tensors, kGgufTensorsMax));
  return keys;
}

std::string suffix_of(uint64_t part, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", part, count);
}

}  // namespace

Result<void> GgufReading::add_part(GgufFile::Contents& all, GgufFile::Contents& part) {
  const size_t number = all.parts.size();
  for (GgufTensor tensor : part.tensors) {
    tensor.part = static_cast<uint32_t>(number);
    const auto [found, added] = all.tensor_of.emplace(tensor.name, all.tensors.size());
    if (!added)
      return invalid(fmt::format("tensor '{}' is in part {} and in part {}", printable(tensor.name),
                                 all.tensors[found->second].part + 1, number + 1));
    all.tensors.push_back(tensor);
  }
  all.parts.push_back(std::move(part.parts.front()));
  return {};
}

Result<GgufFile> GgufReading::join(std::vector<Contents> parts) {
  if (parts.empty()) return invalid("no parts, a model has at least one");
  const Contents first = parts.front();
  TROUPE_TRY(const SplitKeys keys, read_split_keys(GgufFile(first)));
  if (keys.count != parts.size())
    return invalid(keys.count == 1
                       ? fmt::format("{} parts of a model that is not split", parts.size())
                       : fmt::format("part {} of a model in {} parts, {} given", keys.number + 1,
                                     keys.count, parts.size()));
  if (keys.count == 1) return GgufFile(first);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Result<SplitKeys> part = read_split_keys(GgufFile(parts[i]));
    if (!part.ok()) return with_context(part.error(), fmt::format("part {}", i + 1));
    const SplitKeys& seen = part.value();
    if (seen.number != i || seen.count != keys.count || seen.tensors != keys.tensors)
      return invalid(
          fmt::format("part {} of {} ({} tensors) is where part {} of {} ({} tensors) "
                      "should be",
                      seen.number + 1, seen.count, seen.tensors, i + 1, keys.count, keys.tensors));
    if (i > 0) TROUPE_TRY_VOID(add_part(*first, *parts[i]));
  }
  if (first->tensors.size() != keys.tensors)
    return invalid(fmt::format("{} parts hold {} tensors, split.tensors.count is {}", keys.count,
                               first->tensors.size(), keys.tensors));
  return GgufFile(first);
}

Result<GgufFile> GgufReading::complete(Contents first, const std::string& path) {
  const Result<SplitKeys> keys = read_split_keys(GgufFile(first));
  if (!keys.ok()) return with_context(keys.error(), path);
  const uint64_t count = keys.value().count;
  if (count == 1) return GgufFile(std::move(first));
  const std::string suffix = suffix_of(1, count);
  if (keys.value().number != 0)
    return with_context(invalid(fmt::format("part {} of a model in {} parts, open the first "
                                            "(*{})",
                                            keys.value().number + 1, count, suffix)),
                        path);
  if (!path.ends_with(suffix))
    return with_context(
        invalid(fmt::format("first of {} parts, its name must end in {} so that the others are "
                            "found",
                            count, suffix)),
        path);
  const std::string prefix = path.substr(0, path.size() - suffix.size());
  std::vector<Contents> parts{std::move(first)};
  for (uint64_t part = 2; part <= count; ++part) {
    Result<Contents> read_part = read(prefix + suffix_of(part, count));
    if (!read_part.ok())
      return with_context(read_part.error(), fmt::format("part {} of {}", part, count));
    parts.push_back(std::move(read_part).value());
  }
  Result<GgufFile> joined = join(std::move(parts));
  if (!joined.ok()) return with_context(joined.error(), path);
  return joined;
}

}  // namespace troupe
