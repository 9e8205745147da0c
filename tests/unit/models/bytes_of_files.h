// Files in memory for tests, and ways to break them in one place.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <string_view>
#include <vector>

#include "models/gguf.h"
#include "tests/support/tiny_model.h"

namespace troupe::test {

using Bytes = std::vector<std::byte>;

template <class T>
void require_ok(const Result<T>& result) {
  BOOST_REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
}

inline TinyModelOptions small_options() {
  return {.layers = 2, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 64, .context = 64};
}

inline Bytes small_model() {
  Result<GgufWriter> writer = make_tiny_model(small_options());
  BOOST_REQUIRE(writer.ok());
  return writer.value().bytes();
}

// Offset of the first byte after the first occurrence of a text.
inline size_t after(const Bytes& bytes, std::string_view text) {
  const size_t place = as_text(bytes).find(text);
  BOOST_REQUIRE_MESSAGE(place != std::string_view::npos, "no '" << text << "' in the file");
  return place + text.size();
}

template <class T>
void overwrite(Bytes& bytes, size_t offset, T value) {
  BOOST_REQUIRE(offset + sizeof(T) <= bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

// A metadata value is found four bytes (its type) after its key.
template <class T>
void set_metadata(Bytes& bytes, std::string_view key, T value) {
  overwrite(bytes, after(bytes, key) + 4, value);
}

// The fields of a matrix's description, from the end of its name.
inline constexpr size_t kRankAt = 0, kColumnsAt = 4, kRowsAt = 12, kTypeAt = 20, kOffsetAt = 24;

// Every error is one line of text with the code that says the file is at fault, and holds `needle`.
inline void check_refused(const Error& error, std::string_view needle) {
  BOOST_TEST(to_string(error.code) == to_string(ErrorCode::kInvalidFile));
  BOOST_TEST(error.message.find('\n') == std::string::npos);
  BOOST_TEST(error.message.size() < 300U);
  BOOST_TEST(error.message.find(needle) != std::string::npos,
             "'" << error.message << "' does not say '" << needle << "'");
}

}  // namespace troupe::test
