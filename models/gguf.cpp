#include "models/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/digest.h"
#include "models/gguf_internal.h"

namespace troupe {

static_assert(std::endian::native == std::endian::little,
              "tensors are used as the file holds them");

namespace {

constexpr uint32_t kMagic = 0x46554747;         // "GGUF"
constexpr uint64_t kEntryBytesMin = 8 + 4 + 1;  // empty key, type, one byte
constexpr uint64_t kTensorBytesMin =
    8 + 4 + 8 + 4 + 8;  // empty name, rank, one dimension, type, offset

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidFile, std::move(message)};
}

// Keys and tensor names are printable ASCII, so that they can stand in messages as they are.
Result<void> check_name(std::string_view name) {
  if (name.empty()) return invalid("name is empty");
  for (const char c : name)
    if (c < 0x20 || c > 0x7E)
      return invalid(fmt::format("name '{}' holds byte {:#04x}, allowed is printable ASCII",
                                 printable(name), static_cast<unsigned char>(c)));
  return {};
}

}  // namespace

std::string printable(std::string_view text, size_t bytes_max) {
  std::string shown;
  for (const char c : text.substr(0, bytes_max)) shown += (c >= 0x20 && c <= 0x7E) ? c : '?';
  if (text.size() > bytes_max) shown += "...";
  return shown;
}

// One pass over the header: fixed part, metadata, tensor descriptions; then the tensors' places are
// checked.
class GgufParser {
 public:
  explicit GgufParser(ByteSpan bytes) : reader_(bytes) {
    contents_.parts.push_back({std::nullopt, bytes});
  }

  Result<GgufReading::Contents> run(std::optional<MappedFile> mapping) {
    TROUPE_TRY_VOID(read_fixed_part());
    TROUPE_TRY_VOID(read_entries());
    TROUPE_TRY_VOID(read_alignment());
    TROUPE_TRY_VOID(read_tensors());
    TROUPE_TRY_VOID(check_overlaps());
    contents_.parts.front().mapping = std::move(mapping);
    return std::make_shared<GgufFile::Contents>(std::move(contents_));
  }

 private:
  Result<void> read_fixed_part() {
    TROUPE_TRY(const uint32_t magic, reader_.read<uint32_t>());
    if (magic != kMagic)
      return invalid(
          fmt::format("starts with {:#010x}, a GGUF file with {:#010x} (\"GGUF\")", magic, kMagic));
    TROUPE_TRY(contents_.version, reader_.read<uint32_t>());
    if (contents_.version == 0x02000000 || contents_.version == 0x03000000)
      return invalid("a big-endian GGUF file, supported are little-endian ones");
    if (contents_.version != 2 && contents_.version != 3)
      return invalid(
          fmt::format("GGUF version {}, supported are 2 and 3 (little-endian)", contents_.version));
    TROUPE_TRY(tensor_count_, reader_.read<uint64_t>());
    TROUPE_TRY(entry_count_, reader_.read<uint64_t>());
    const auto check = [&](const char* what, uint64_t count, uint64_t limit,
                           uint64_t bytes_each) -> Result<void> {
      if (count > limit) return invalid(fmt::format("{} count {}, limit {}", what, count, limit));
      if (count > reader_.remaining() / bytes_each)
        return invalid(fmt::format("{} count {} needs more than the {} bytes that follow", what,
                                   count, reader_.remaining()));
      return {};
    };
    TROUPE_TRY_VOID(check("tensor", tensor_count_, kGgufTensorsMax, kTensorBytesMin));
    return check("metadata key", entry_count_, kGgufKeysMax, kEntryBytesMin);
  }

  Result<std::string_view> read_text(uint64_t bytes_max, const char* what) {
    TROUPE_TRY(const uint64_t size, reader_.read<uint64_t>());
    if (size > bytes_max)
      return invalid(fmt::format("{} of {} bytes at byte {}, limit {}", what, size,
                                 reader_.offset() - 8, bytes_max));
    TROUPE_TRY(const ByteSpan view, reader_.read_bytes(size));
    return as_text(view);
  }

  Result<GgufType> read_type() {
    TROUPE_TRY(const uint32_t number, reader_.read<uint32_t>());
    if (number > static_cast<uint32_t>(GgufType::kF64))
      return invalid(fmt::format("value type {}, known are 0 to 12", number));
    return static_cast<GgufType>(number);
  }

  Result<ByteSpan> read_scalars(GgufType type, uint64_t count) {
    const size_t size = scalar_bytes(type);
    if (count > reader_.remaining() / size)
      return invalid(fmt::format("array of {} {} values, {} bytes follow", count, to_string(type),
                                 reader_.remaining()));
    TROUPE_TRY(const ByteSpan bytes, reader_.read_bytes(count * size));
    if (type == GgufType::kBool)
      for (const std::byte b : bytes)
        if (std::to_integer<unsigned>(b) > 1)
          return invalid(
              fmt::format("bool of value {}, allowed are 0 and 1", std::to_integer<unsigned>(b)));
    return bytes;
  }

  Result<GgufArray> read_array(uint32_t depth) {
    if (depth > kGgufArrayDepthMax)
      return invalid(fmt::format("arrays nested deeper than {}", kGgufArrayDepthMax));
    GgufArray array;
    TROUPE_TRY(array.element, read_type());
    TROUPE_TRY(array.count, reader_.read<uint64_t>());
    if (array.element == GgufType::kText) {
      if (array.count > reader_.remaining() / 8)
        return invalid(
            fmt::format("array of {} texts, {} bytes follow", array.count, reader_.remaining()));
      array.texts.reserve(static_cast<size_t>(array.count));
      for (uint64_t i = 0; i < array.count; ++i) {
        TROUPE_TRY(const std::string_view text, read_text(reader_.remaining(), "text"));
        array.texts.push_back(text);
      }
    } else if (array.element == GgufType::kArray) {
      if (array.count > kGgufInnerArraysMax - inner_arrays_)
        return invalid(fmt::format("{} more arrays inside arrays after {}, limit {}", array.count,
                                   inner_arrays_, kGgufInnerArraysMax));
      inner_arrays_ += array.count;
      for (uint64_t i = 0; i < array.count; ++i) {
        TROUPE_TRY(GgufArray inner, read_array(depth + 1));
        array.arrays.push_back(std::move(inner));
      }
    } else {
      TROUPE_TRY(array.scalars, read_scalars(array.element, array.count));
    }
    return array;
  }

  Result<GgufValue> read_value() {
    GgufValue value;
    TROUPE_TRY(value.type, read_type());
    if (value.type == GgufType::kText) {
      TROUPE_TRY(value.text, read_text(reader_.remaining(), "text"));
    } else if (value.type == GgufType::kArray) {
      TROUPE_TRY(value.array, read_array(1));
    } else {
      TROUPE_TRY(value.scalar, read_scalars(value.type, 1));
    }
    return value;
  }

  Result<void> read_entries() {
    contents_.entries.reserve(static_cast<size_t>(entry_count_));
    for (uint64_t i = 0; i < entry_count_; ++i) {
      Result<std::string_view> key = read_text(kGgufKeyBytesMax, "key");
      if (!key.ok()) return with_context(key.error(), fmt::format("metadata key {}", i));
      if (const Result<void> named = check_name(key.value()); !named.ok())
        return with_context(named.error(), fmt::format("metadata key {}", i));
      Result<GgufValue> value = read_value();
      if (!value.ok())
        return with_context(value.error(), fmt::format("metadata '{}'", printable(key.value())));
      if (!contents_.entry_of.emplace(key.value(), contents_.entries.size()).second)
        return invalid(fmt::format("metadata key '{}' appears twice", printable(key.value())));
      contents_.entries.push_back({key.value(), std::move(value).value()});
    }
    return {};
  }

  Result<void> read_alignment() {
    const auto found = contents_.entry_of.find("general.alignment");
    if (found == contents_.entry_of.end()) return {};
    const GgufValue& value = contents_.entries[found->second].value;
    const Result<uint64_t> alignment = value.unsigned_integer();
    if (!alignment.ok()) return with_context(alignment.error(), "metadata 'general.alignment'");
    if (alignment.value() < 8 || alignment.value() > kGgufAlignmentMax ||
        !std::has_single_bit(alignment.value()))
      return invalid(fmt::format("general.alignment {}, allowed are powers of two from 8 to {}",
                                 alignment.value(), kGgufAlignmentMax));
    contents_.alignment = alignment.value();
    return {};
  }

  Result<void> read_tensors() {
    contents_.tensors.reserve(static_cast<size_t>(tensor_count_));
    std::vector<uint64_t> offsets;
    offsets.reserve(static_cast<size_t>(tensor_count_));
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      GgufTensor tensor;
      Result<uint64_t> offset = read_tensor(tensor);
      if (!offset.ok())
        return with_context(
            offset.error(),
            fmt::format("tensor {}{}", i,
                        tensor.name.empty() ? "" : " '" + printable(tensor.name) + "'"));
      if (!contents_.tensor_of.emplace(tensor.name, contents_.tensors.size()).second)
        return invalid(fmt::format("tensor '{}' appears twice", printable(tensor.name)));
      contents_.tensors.push_back(tensor);
      offsets.push_back(offset.value());
    }
    // The data section starts at the next multiple of the alignment. A file without tensors may end
    // before it.
    const uint64_t mask = contents_.alignment - 1;
    const uint64_t data_start = (reader_.offset() + mask) & ~mask;
    for (size_t i = 0; i < offsets.size(); ++i)
      TROUPE_TRY_VOID(place(contents_.tensors[i], data_start, offsets[i]));
    return {};
  }

  // Everything of a tensor but its bytes; returns its offset in the data section.
  Result<uint64_t> read_tensor(GgufTensor& tensor) {
    TROUPE_TRY(tensor.name, read_text(kGgufTensorNameBytesMax, "name"));
    TROUPE_TRY_VOID(check_name(tensor.name));
    TROUPE_TRY(tensor.rank, reader_.read<uint32_t>());
    if (tensor.rank < 1 || tensor.rank > kGgufRankMax)
      return invalid(fmt::format("{} dimensions, allowed are 1 to {}", tensor.rank, kGgufRankMax));
    for (uint32_t d = 0; d < tensor.rank; ++d) {
      TROUPE_TRY(tensor.shape[d], reader_.read<uint64_t>());
      if (tensor.shape[d] == 0) return invalid(fmt::format("dimension {} is 0", d));
    }
    TROUPE_TRY(tensor.type, reader_.read<uint32_t>());
    return reader_.read<uint64_t>();
  }

  // The tensor's bytes by its type and shape, if they lie in the file.
  Result<void> place(GgufTensor& tensor, uint64_t data_start, uint64_t offset) {
    const auto fail = [&](const std::string& what) {
      return invalid(fmt::format("tensor '{}': {}", printable(tensor.name), what));
    };
    const std::optional<GgmlTypeLayout> layout = ggml_type_layout(tensor.type);
    if (!layout.has_value()) return fail(refuse_ggml_type(tensor.type));
    if (tensor.columns() % layout->block_elements != 0)
      return fail(fmt::format("{} columns, type {} needs a multiple of {}", tensor.columns(),
                              layout->name, layout->block_elements));
    uint64_t size = tensor.columns() / layout->block_elements;
    for (const uint64_t factor :
         {uint64_t{layout->block_bytes}, tensor.shape[1], tensor.shape[2], tensor.shape[3]})
      if (__builtin_mul_overflow(size, factor, &size))
        return fail(fmt::format("shape {}x{}x{}x{} overflows 64 bits", tensor.shape[0],
                                tensor.shape[1], tensor.shape[2], tensor.shape[3]));
    if (offset % contents_.alignment != 0)
      return fail(fmt::format("offset {} is not a multiple of the alignment {}", offset,
                              contents_.alignment));
    const ByteSpan all = contents_.parts.front().bytes;
    const uint64_t file_size = all.size();
    const uint64_t available = data_start <= file_size ? file_size - data_start : 0;
    if (offset > available || size > available - offset)
      return fail(fmt::format("{} bytes at offset {}, the file has {} bytes of tensor data", size,
                              offset, available));
    tensor.bytes = all.subspan(static_cast<size_t>(data_start + offset), static_cast<size_t>(size));
    return {};
  }

  Result<void> check_overlaps() {
    std::vector<const GgufTensor*> by_place;
    by_place.reserve(contents_.tensors.size());
    for (const GgufTensor& tensor : contents_.tensors) by_place.push_back(&tensor);
    std::sort(by_place.begin(), by_place.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return a->bytes.data() < b->bytes.data();
    });
    for (size_t i = 1; i < by_place.size(); ++i) {
      const ByteSpan before = by_place[i - 1]->bytes;
      if (before.data() + before.size() > by_place[i]->bytes.data())
        return invalid(fmt::format("tensors '{}' and '{}' overlap",
                                   printable(by_place[i - 1]->name), printable(by_place[i]->name)));
    }
    return {};
  }

  ByteReader reader_;
  GgufFile::Contents contents_;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t inner_arrays_ = 0;
};

Result<GgufReading::Contents> GgufReading::read(ByteSpan bytes, std::optional<MappedFile> mapping) {
  return GgufParser(bytes).run(std::move(mapping));
}

Result<GgufReading::Contents> GgufReading::read(const std::string& path) {
  TROUPE_TRY(MappedFile mapping, MappedFile::open(path));
  const ByteSpan bytes = mapping.bytes();
  Result<Contents> contents = read(bytes, std::move(mapping));
  if (!contents.ok()) return with_context(contents.error(), path);
  return contents;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  TROUPE_TRY(GgufReading::Contents first, GgufReading::read(path));
  return GgufReading::complete(std::move(first), path);
}

Result<GgufFile> GgufFile::parse(ByteSpan bytes) {
  return parse_parts({&bytes, 1});
}

Result<GgufFile> GgufFile::parse_parts(std::span<const ByteSpan> parts) {
  std::vector<GgufReading::Contents> all;
  for (const ByteSpan part : parts) {
    TROUPE_TRY(GgufReading::Contents contents, GgufReading::read(part, std::nullopt));
    all.push_back(std::move(contents));
  }
  return GgufReading::join(std::move(all));
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = contents_->entry_of.find(key);
  return found == contents_->entry_of.end() ? nullptr : &contents_->entries[found->second].value;
}

Result<const GgufValue*> GgufFile::required(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr)
    return Error{ErrorCode::kNotFound, fmt::format("metadata '{}' is missing", key)};
  return found;
}

Result<const GgufArray*> GgufFile::required_array(std::string_view key) const {
  TROUPE_TRY(const GgufValue* found, required(key));
  if (found->type != GgufType::kArray)
    return invalid(
        fmt::format("metadata '{}': type {}, needed an array", key, to_string(found->type)));
  return &found->array;
}

Result<uint64_t> GgufFile::unsigned_integer(std::string_view key) const {
  TROUPE_TRY(const GgufValue* found, required(key));
  Result<uint64_t> result = found->unsigned_integer();
  if (!result.ok()) return with_context(result.error(), fmt::format("metadata '{}'", key));
  return result;
}

Result<double> GgufFile::number(std::string_view key) const {
  TROUPE_TRY(const GgufValue* found, required(key));
  Result<double> result = found->number();
  if (!result.ok()) return with_context(result.error(), fmt::format("metadata '{}'", key));
  return result;
}

Result<bool> GgufFile::boolean(std::string_view key) const {
  TROUPE_TRY(const GgufValue* found, required(key));
  Result<bool> result = found->boolean();
  if (!result.ok()) return with_context(result.error(), fmt::format("metadata '{}'", key));
  return result;
}

Result<std::string_view> GgufFile::text(std::string_view key) const {
  TROUPE_TRY(const GgufValue* found, required(key));
  if (found->type != GgufType::kText)
    return invalid(fmt::format("metadata '{}': type {}, needed text", key, to_string(found->type)));
  return found->text;
}

Result<std::span<const std::string_view>> GgufFile::texts(std::string_view key) const {
  TROUPE_TRY(const GgufArray* array, required_array(key));
  if (array->element != GgufType::kText)
    return invalid(
        fmt::format("metadata '{}': array of {}, needed texts", key, to_string(array->element)));
  return std::span<const std::string_view>(array->texts);
}

Result<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  TROUPE_TRY(const GgufArray* array, required_array(key));
  if (scalar_bytes(array->element) == 0)
    return invalid(
        fmt::format("metadata '{}': array of {}, needed integers", key, to_string(array->element)));
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(array->count));
  for (uint64_t i = 0; i < array->count; ++i) {
    const Result<int64_t> element = element_of(*array, i).signed_integer();
    if (!element.ok())
      return with_context(element.error(), fmt::format("metadata '{}'[{}]", key, i));
    values.push_back(element.value());
  }
  return values;
}

Result<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  TROUPE_TRY(const GgufArray* array, required_array(key));
  if (scalar_bytes(array->element) == 0)
    return invalid(
        fmt::format("metadata '{}': array of {}, needed numbers", key, to_string(array->element)));
  std::vector<double> values;
  values.reserve(static_cast<size_t>(array->count));
  for (uint64_t i = 0; i < array->count; ++i) {
    const Result<double> element = element_of(*array, i).number();
    if (!element.ok())
      return with_context(element.error(), fmt::format("metadata '{}'[{}]", key, i));
    values.push_back(element.value());
  }
  return values;
}

std::span<const GgufEntry> GgufFile::entries() const {
  return contents_->entries;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = contents_->tensor_of.find(name);
  return found == contents_->tensor_of.end() ? nullptr : &contents_->tensors[found->second];
}

std::span<const GgufTensor> GgufFile::tensors() const {
  return contents_->tensors;
}
uint32_t GgufFile::version() const {
  return contents_->version;
}
uint64_t GgufFile::alignment() const {
  return contents_->alignment;
}
ByteSpan GgufFile::bytes() const {
  return contents_->parts.front().bytes;
}

const MappedFile* GgufFile::mapping() const {
  const std::optional<MappedFile>& mapping = contents_->parts.front().mapping;
  return mapping.has_value() ? &*mapping : nullptr;
}

size_t GgufFile::parts() const {
  return contents_->parts.size();
}
ByteSpan GgufFile::part_bytes(size_t part) const {
  TROUPE_CHECK(part < contents_->parts.size(), "a part that is there");
  return contents_->parts[part].bytes;
}

uint64_t GgufFile::total_bytes() const {
  uint64_t total = 0;
  for (const GgufPart& part : contents_->parts) total += part.bytes.size();
  return total;
}

void GgufFile::dont_need(const GgufTensor& tensor) const {
  const GgufPart& part = contents_->parts[tensor.part];
  if (!part.mapping.has_value()) return;
  part.mapping->dont_need(static_cast<size_t>(tensor.bytes.data() - part.bytes.data()),
                          tensor.bytes.size());
}

std::string GgufFile::content_id() const {
  if (contents_->parts.size() == 1) return troupe::content_id(bytes());
  std::string ids;
  for (const GgufPart& part : contents_->parts) ids += troupe::content_id(part.bytes);
  return troupe::content_id(as_byte_span(ids));
}

}  // namespace troupe
