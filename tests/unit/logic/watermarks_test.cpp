// How long journals reach back.
#include "actors/logic/watermarks.h"

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

namespace troupe {
namespace {

using Own = std::map<SequenceId, uint32_t>;
constexpr uint32_t kChunk = Journal::kChunkRows;

std::string text(const std::vector<FeedLength>& news) {
  std::string all;
  for (const FeedLength& one : news) all += fmt::format("{}:{} ", one.sequence.value, one.length);
  return all;
}

BOOST_AUTO_TEST_SUITE(watermarks)

BOOST_AUTO_TEST_CASE(the_last_stage_tells_what_its_own_standby_holds_chunk_by_chunk) {
  Watermarks last;
  const Own own{{{1}, kChunk - 1}, {{2}, kChunk + 5}};
  BOOST_TEST(text(last.news(own, true, 10)) == "2:69 ");
  BOOST_TEST(text(last.news(own, true, 10)) == "");  // told
  BOOST_TEST(text(last.news({{{1}, kChunk}, {{2}, 2 * kChunk + 4}}, true, 10)) == "1:64 ");
  BOOST_TEST(text(last.news({{{2}, 2 * kChunk + 5}}, true, 10)) == "2:133 ");
}

BOOST_AUTO_TEST_CASE(any_other_tells_the_least_of_all_downstream) {
  Watermarks stage;
  const Own own{{{1}, 500}};
  BOOST_TEST(text(stage.news(own, false, 10)) == "");  // nothing is known of those behind it
  stage.on_downstream({1}, 200);
  BOOST_TEST(text(stage.news(own, false, 10)) == "1:200 ");
  stage.on_downstream({1}, 100);  // late news
  stage.on_downstream({1}, 900);
  BOOST_TEST(text(stage.news(own, false, 10)) == "1:500 ");
  BOOST_TEST(text(stage.news({{{1}, 0}}, false, 10)) == "");
}

BOOST_AUTO_TEST_CASE(they_are_told_within_bounds_and_forgotten) {
  Watermarks stage;
  Own own;
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) own[{sequence}] = 1000;
  BOOST_TEST(stage.news(own, true, 3).size() == 3U);
  BOOST_TEST(stage.news(own, true, 3).size() == 2U);
  stage.forget({4});
  BOOST_TEST(text(stage.news(own, true, 3)) == "4:1000 ");
  stage.clear();
  BOOST_TEST(stage.news(own, true, 10).size() == 5U);
  stage.on_downstream({1}, 100);
  stage.forget({1});
  BOOST_TEST(text(stage.news(own, false, 10)) == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
