#include "base/digest.h"

#include <boost/test/unit_test.hpp>

#include "base/ids.h"
#include "base/prng.h"

using namespace troupe;

namespace {

std::string varied_text(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + i / 7);
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(digests)

BOOST_AUTO_TEST_CASE(are_xxh3_with_its_published_values) {
  // XXH3_64bits and XXH3_128bits of nothing with seed 0, as xxHash's own sanity checks have them.
  BOOST_TEST(digest64({}) == 0x2D06800538D394C2U);
  BOOST_TEST(content_id({}) == "99aa06d3014798d86001c324468d497f");
}

BOOST_AUTO_TEST_CASE(fed_in_pieces_equal_the_digest_of_the_whole) {
  const std::string text = varied_text(5000);
  const uint64_t whole = digest64(as_byte_span(text), 7);
  for (const size_t piece :
       {size_t{1}, size_t{3}, size_t{64}, size_t{255}, size_t{1024}, size_t{5000}}) {
    DigestStream stream(7);
    for (size_t at = 0; at < text.size(); at += piece)
      stream.add(as_byte_span(std::string_view(text).substr(at, piece)));
    BOOST_TEST(stream.value() == whole, "pieces of " << piece);
  }
}

BOOST_AUTO_TEST_CASE(change_with_every_bit_and_with_the_key) {
  std::string text = varied_text(300);
  const uint64_t before = digest64(as_byte_span(text));
  BOOST_TEST(digest64(as_byte_span(text), 1) != before);
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    BOOST_TEST(digest64(as_byte_span(text)) != before);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  }
}

BOOST_AUTO_TEST_CASE(ids_are_written_as_sixteen_digits) {
  BOOST_TEST(to_hex(0) == "0000000000000000");
  BOOST_TEST(to_hex(0xFEDCBA9876543210U) == "fedcba9876543210");
  BOOST_TEST(to_string(ViewNumber{255}) == "00000000000000ff");
  BOOST_TEST(!ViewNumber{});
  BOOST_TEST((ViewNumber{1} < ViewNumber{2}));
}

BOOST_AUTO_TEST_SUITE_END()
