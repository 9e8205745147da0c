#include "apps/cli/terminal.h"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::cli;

BOOST_AUTO_TEST_SUITE(terminal)

BOOST_AUTO_TEST_CASE(shows_control_characters_instead_of_obeying_them) {
  BOOST_TEST(printable("a\033[2Jb\rc\nd\te\x7f") == "a\\x1b[2Jb\\x0dc\nd\te\\x7f");
  BOOST_TEST(printable("caf\xc3\xa9 \xe2\x82\xac") == "caf\xc3\xa9 \xe2\x82\xac");
  BOOST_TEST(printable("\xc2\x9b") == "\\x9b");  // the one-byte CSI, in UTF-8
}

BOOST_AUTO_TEST_CASE(writes_sizes_and_durations_for_people) {
  BOOST_TEST(human_bytes(0) == "0 B");
  BOOST_TEST(human_bytes(1023) == "1023 B");
  BOOST_TEST(human_bytes(98'362'432) == "93.8 MiB");
  BOOST_TEST(human_bytes(uint64_t{200} << 30) == "200 GiB");
  BOOST_TEST(human_duration(850us) == "850 µs");
  BOOST_TEST(human_duration(12300us) == "12.3 ms");
  BOOST_TEST(human_duration(4200ms) == "4.20 s");
  BOOST_TEST(human_duration(200s) == "3 min 20 s");
  BOOST_TEST(human_duration(3700s) == "1 h 1 min");
  BOOST_TEST(human_duration(90000s) == "1 d 1 h");
}

BOOST_AUTO_TEST_CASE(aligns_columns_by_what_is_seen) {
  Table table({{"name"}, {"size", true}});
  table.add({{"µ"}, {"1"}});
  table.add({{"long name"}, {"1000"}});
  BOOST_TEST(table.text("  ") ==
             "  name       size\n"
             "  µ             1\n"
             "  long name  1000\n");
}

BOOST_AUTO_TEST_CASE(leaves_out_a_header_without_words) {
  Table table({{""}, {"", true}});
  table.add({{"a"}, {"1"}});
  BOOST_TEST(table.text("") == "a  1\n");
}

BOOST_AUTO_TEST_SUITE_END()
