#include "base/bytes.h"

#include <boost/test/unit_test.hpp>
#include <limits>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(bytes)

BOOST_AUTO_TEST_CASE(reads_little_endian_values_in_order) {
  ByteReader reader(as_byte_span(std::string_view("\x01\x02\x03\x04\x05\xff", 6)));
  BOOST_TEST(reader.read<uint16_t>().value() == 0x0201);
  BOOST_TEST(reader.offset() == 2U);
  BOOST_TEST(reader.remaining() == 4U);
  BOOST_TEST(reader.read<uint8_t>().value() == 3);
  BOOST_TEST(as_text(reader.read_bytes(2).value()) == "\x04\x05");
  BOOST_TEST(reader.read<int8_t>().value() == -1);
  BOOST_TEST(reader.remaining() == 0U);
}

BOOST_AUTO_TEST_CASE(refuses_to_read_past_the_end_and_stays_where_it_was) {
  ByteReader reader(as_byte_span("abc"));
  const Result<uint32_t> value = reader.read<uint32_t>();
  BOOST_REQUIRE(!value.ok());
  BOOST_TEST((value.error().code == ErrorCode::kInvalidFile));
  BOOST_TEST(value.error().message == "ends at byte 3 where 4 more bytes were announced at byte 0");
  // A count as a hostile file has it: larger than any sum with the offset may be.
  BOOST_TEST(!reader.read_bytes(std::numeric_limits<uint64_t>::max()).ok());
  BOOST_TEST(reader.offset() == 0U);
  BOOST_TEST(reader.read_bytes(3).ok());
  BOOST_TEST(reader.read_bytes(0).ok());
  BOOST_TEST(!reader.read<uint8_t>().ok());
}

BOOST_AUTO_TEST_CASE(buffers_are_aligned_for_vector_loads_and_shared_by_copies) {
  for (const size_t size : {size_t{1}, size_t{63}, size_t{4097}}) {
    SharedBuffer buffer = SharedBuffer::allocate(size);
    BOOST_TEST(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0U);
    BOOST_TEST(buffer.size() == size);
    buffer.mutable_data()[0] = std::byte{42};
    const SharedBuffer copy = buffer;
    BOOST_TEST((copy.data() == buffer.data()));
    BOOST_TEST((copy.view()[0] == std::byte{42}));
  }
  BOOST_TEST(SharedBuffer().empty());
  BOOST_TEST(SharedBuffer::allocate(0).empty());
}

BOOST_AUTO_TEST_CASE(a_partial_element_at_the_end_is_not_shown) {
  const SharedBuffer buffer = SharedBuffer::allocate(11);
  BOOST_TEST(buffer.as<float>().size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_wrapped_owner_goes_with_the_last_copy) {
  int released = 0;
  std::byte storage[4]{};
  {
    SharedBuffer first =
        SharedBuffer::wrap({storage, [&](std::byte*) { ++released; }}, sizeof storage);
    const SharedBuffer second = first;
    first = SharedBuffer();
    BOOST_TEST(released == 0);
  }
  BOOST_TEST(released == 1);
}

BOOST_AUTO_TEST_SUITE_END()
