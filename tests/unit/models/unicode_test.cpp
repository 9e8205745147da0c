// UTF-8 and code point classes. Expected values are from the Unicode standard (table 3-7; the
// character database).
#include "models/tokenizers/unicode.h"

#include <boost/test/unit_test.hpp>

#include "models/tokenizers/unicode_tables.h"

namespace troupe {

BOOST_AUTO_TEST_SUITE(unicode)

BOOST_AUTO_TEST_CASE(every_code_point_survives_encoding_and_decoding) {
  for (uint32_t point = 0; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, point);
    const DecodedCodePoint decoded = decode_utf8(text);
    BOOST_REQUIRE((decoded.status == Utf8Status::kValid));
    BOOST_REQUIRE_EQUAL(decoded.code_point, point);
    BOOST_REQUIRE_EQUAL(decoded.bytes, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const DecodedCodePoint part = decode_utf8(std::string_view(text).substr(0, cut));
      BOOST_REQUIRE((part.status == Utf8Status::kIncomplete));
      BOOST_REQUIRE_EQUAL(part.bytes, cut);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_is_not_utf8_is_invalid) {
  struct Case {
    const char* text;
    uint32_t bytes;  // of the maximal subpart
  };
  for (const auto& [text, bytes] :
       {Case{"\x80", 1}, Case{"\xC0\x80", 1}, Case{"\xC1\xBF", 1}, Case{"\xE0\x80\x80", 1},
        Case{"\xED\xA0\x80", 1}, Case{"\xF0\x80\x80\x80", 1}, Case{"\xF4\x90\x80\x80", 1},
        Case{"\xF5\x80\x80\x80", 1}, Case{"\xFF", 1}, Case{"\xC3(", 1}, Case{"\xE2\x82(", 2},
        Case{"\xF0\x9F\x92(", 3}}) {
    const DecodedCodePoint decoded = decode_utf8(text);
    BOOST_TEST((decoded.status == Utf8Status::kInvalid));
    BOOST_TEST(decoded.bytes == bytes);
  }
  BOOST_TEST(valid_utf8_prefix("été\xFFx") == 5U);
  BOOST_TEST(valid_utf8_prefix("été\xC3") == 5U);
  BOOST_TEST(valid_utf8_prefix("été") == 5U);
}

BOOST_AUTO_TEST_CASE(classes_are_those_of_the_character_database) {
  const auto all_are = [](std::initializer_list<uint32_t> points, CodePointClass kind) {
    for (const uint32_t point : points)
      BOOST_TEST((class_of(point) == kind), "U+" << std::hex << point);
  };
  all_are({'a', 'Z', 0xAA, 0xB5, 0xE9, 0x2C6, 0x3A9, 0x4E00, 0x9FFF, 0xAC00, 0x1D4B3, 0x20000},
          CodePointClass::kLetter);
  all_are({'0', '9', 0xB2, 0xBD, 0x664, 0x2163, 0x3007, 0x1D7CE}, CodePointClass::kNumber);
  all_are({' ', '\t', '\n', '\r', 0x0B, 0x85, 0xA0, 0x2028, 0x202F, 0x3000},
          CodePointClass::kSpace);
  all_are({0, '!', '_', '$', 0x1C, 0x1F, 0xAD, 0x301, 0x200B, 0xFEFF, 0x1F600, 0xE000, 0x10FFFF},
          CodePointClass::kOther);
}

BOOST_AUTO_TEST_CASE(tables_are_ascending_and_do_not_meet) {
  for (const auto ranges : {letter_ranges(), number_ranges(), space_ranges()}) {
    BOOST_TEST(!ranges.empty());
    for (size_t i = 0; i < ranges.size(); ++i) {
      BOOST_REQUIRE(ranges[i].first <= ranges[i].last);
      if (i > 0) BOOST_REQUIRE(ranges[i - 1].last + 1 < ranges[i].first);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe
