// The journal of a stage, and the feed of its standby.
#include "actors/logic/journal.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "actors/logic/standby_feed.h"

namespace troupe {
namespace {

constexpr size_t kRow = 4;
const SequenceId kA{1}, kB{2};

// Row p of sequence s is four bytes that name both.
std::vector<std::byte> rows(SequenceId sequence, uint32_t position, uint32_t count) {
  std::vector<std::byte> bytes;
  for (uint32_t p = position; p < position + count; ++p)
    for (const uint32_t value : {static_cast<uint32_t>(sequence.value), p & 255, p >> 8, 9U})
      bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

bool holds(const Journal& journal, SequenceId sequence, uint32_t position, uint32_t count) {
  std::vector<std::byte> out(count * kRow);
  return journal.read(sequence, position, count, out) && out == rows(sequence, position, count);
}

uint32_t draw(std::mt19937& random, uint32_t below) {
  return static_cast<uint32_t>(random() % below);
}

BOOST_AUTO_TEST_SUITE(journal)

BOOST_AUTO_TEST_CASE(gives_back_what_was_appended) {
  Journal journal(1 << 20, kRow);
  journal.append(kA, 0, rows(kA, 0, 100));
  journal.append(kA, 100, rows(kA, 100, 1));
  journal.append(kB, 30, rows(kB, 30, 5));
  BOOST_TEST(holds(journal, kA, 0, 101));
  BOOST_TEST(holds(journal, kA, 63, 2));
  BOOST_TEST(holds(journal, kA, 100, 1));
  BOOST_TEST(holds(journal, kB, 32, 2));
  BOOST_TEST(!holds(journal, kA, 100, 2));
  BOOST_TEST(!holds(journal, kB, 29, 2));
  BOOST_TEST(!holds(journal, SequenceId{3}, 0, 1));
  BOOST_TEST((journal.range(kA) == Journal::Range{0, 101}));
  BOOST_TEST((journal.range(kB) == Journal::Range{30, 35}));
  BOOST_TEST((journal.range(SequenceId{3}) == Journal::Range{0, 0}));
  BOOST_TEST(journal.bytes() == 106 * kRow);
}

BOOST_AUTO_TEST_CASE(repeats_change_nothing_and_overlaps_add_their_end) {
  Journal journal(1 << 20, kRow);
  journal.append(kA, 10, rows(kA, 10, 10));
  journal.append(kA, 12, rows(kA, 12, 3));
  BOOST_TEST(journal.bytes() == 10 * kRow);
  journal.append(kA, 15, rows(kA, 15, 10));
  BOOST_TEST((journal.range(kA) == Journal::Range{10, 25}));
  // Rows that begin in front of what is kept are known from there on; their end is new.
  journal.append(kA, 5, rows(kA, 5, 25));
  BOOST_TEST((journal.range(kA) == Journal::Range{10, 30}));
  BOOST_TEST(holds(journal, kA, 10, 20));
}

BOOST_AUTO_TEST_CASE(a_hole_starts_it_anew) {
  Journal journal(1 << 20, kRow);
  journal.append(kA, 0, rows(kA, 0, 10));
  journal.append(kA, 12, rows(kA, 12, 2));
  BOOST_TEST((journal.range(kA) == Journal::Range{12, 14}));
  BOOST_TEST(journal.bytes() == 2 * kRow);
  // A replay from the start, of one that is kept further behind.
  journal.append(kA, 0, rows(kA, 0, 4));
  BOOST_TEST((journal.range(kA) == Journal::Range{0, 4}));
  BOOST_TEST(holds(journal, kA, 0, 4));
  // Nothing of what was behind is pretended to be kept, at neither end.
  BOOST_TEST((journal.range(kA) != Journal::Range{0, 14}));
  BOOST_TEST((journal.range(kA) != Journal::Range{12, 4}));
}

BOOST_AUTO_TEST_CASE(the_longest_gives_way_from_its_front_for_want_of_memory) {
  Journal journal(200 * kRow, kRow);
  journal.append(kB, 0, rows(kB, 0, 20));
  journal.append(kA, 0, rows(kA, 0, 150));
  journal.append(kA, 150, rows(kA, 150, 40));  // 210 rows in all
  BOOST_TEST((journal.range(kA) == Journal::Range{64, 190}));
  BOOST_TEST(holds(journal, kA, 64, 126));
  BOOST_TEST(holds(journal, kB, 0, 20));
  BOOST_TEST(journal.chunks_dropped() == 1U);
  BOOST_TEST(journal.bytes() <= 200 * kRow);
  Journal tiny(3 * kRow, kRow);
  tiny.append(kA, 0, rows(kA, 0, 4));
  BOOST_TEST((tiny.range(kA) == Journal::Range{0, 0}));
  BOOST_TEST(tiny.bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(trims_below_the_watermark_by_whole_chunks) {
  Journal journal(1 << 20, kRow);
  journal.append(kA, 0, rows(kA, 0, 200));
  journal.trim(kA, 63);
  BOOST_TEST((journal.range(kA) == Journal::Range{0, 200}));
  journal.trim(kA, 130);
  BOOST_TEST((journal.range(kA) == Journal::Range{128, 200}));
  BOOST_TEST(holds(journal, kA, 130, 70));
  journal.trim(kA, 1000);
  BOOST_TEST((journal.range(kA) == Journal::Range{192, 200}));
  journal.trim(kB, 5);
}

BOOST_AUTO_TEST_CASE(forgets_and_clears) {
  Journal journal(1 << 20, kRow);
  journal.append(kA, 0, rows(kA, 0, 70));
  journal.append(kB, 0, rows(kB, 0, 7));
  journal.forget(kA);
  journal.forget(SequenceId{3});
  BOOST_TEST(!holds(journal, kA, 0, 1));
  BOOST_TEST(journal.bytes() == 7 * kRow);
  journal.clear();
  BOOST_TEST(journal.bytes() == 0U);
  BOOST_TEST(!holds(journal, kB, 0, 1));
}

BOOST_AUTO_TEST_CASE(random_calls_never_give_wrong_bytes) {
  std::mt19937 random(3);
  Journal journal(500 * kRow, kRow);
  for (int step = 0; step < 20000; ++step) {
    const SequenceId sequence{1 + draw(random, 4)};
    const uint32_t position = draw(random, 300), count = 1 + draw(random, 80);
    switch (draw(random, 5)) {
      case 0:
        journal.trim(sequence, position);
        break;
      case 1:
        if (draw(random, 10) == 0) journal.forget(sequence);
        break;
      case 2: {
        const Journal::Range range = journal.range(sequence);
        const bool kept = position >= range.first && position + count <= range.end;
        BOOST_TEST(holds(journal, sequence, position, count) == kept);
        break;
      }
      default: {
        const uint32_t end = journal.range(sequence).end;
        const uint32_t at = draw(random, 4) == 0 ? position : end - std::min(end, draw(random, 3));
        journal.append(sequence, at, rows(sequence, at, count));
      }
    }
    BOOST_TEST(journal.bytes() <= 500 * kRow);
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(standby_feed)

std::string text(const std::vector<FeedRows>& rows) {
  std::string all;
  for (const FeedRows& one : rows)
    all += std::to_string(one.sequence.value) + ":" + std::to_string(one.position) + "+" +
           std::to_string(one.rows) + " ";
  return all;
}

BOOST_AUTO_TEST_CASE(sends_when_enough_waits_and_one_frame_at_a_time) {
  StandbyFeed feed(4, 10);
  const std::vector<FeedLength> little{{kA, 3}};
  BOOST_TEST(text(feed.next(little)) == "");
  BOOST_TEST(feed.behind() == 3U);
  const std::vector<FeedLength> held{{kA, 7}, {kB, 20}};
  BOOST_TEST(text(feed.next(held)) == "1:0+7 2:0+3 ");
  BOOST_TEST(text(feed.next(held)) == "");  // under way
  const std::vector<FeedLength> stored{{kA, 7}, {kB, 3}};
  feed.on_stored(stored);
  BOOST_TEST(feed.watermark(kA) == 7U);
  BOOST_TEST(feed.watermark(kB) == 3U);
  BOOST_TEST(text(feed.next(held)) == "2:3+10 ");
  BOOST_TEST(feed.behind() == 17U);
}

BOOST_AUTO_TEST_CASE(a_watermark_moves_only_on_the_standbys_word) {
  StandbyFeed feed(1, 100);
  const std::vector<FeedLength> held{{kA, 7}};
  BOOST_TEST(text(feed.next(held)) == "1:0+7 ");
  BOOST_TEST(feed.watermark(kA) == 0U);
  feed.on_lost();
  BOOST_TEST(feed.watermark(kA) == 0U);
  BOOST_TEST(text(feed.next(held)) == "1:0+7 ");  // once more
  // The standby holds less than was sent: from there on again.
  feed.on_stored(std::vector<FeedLength>{{kA, 2}});
  BOOST_TEST(text(feed.next(held)) == "1:2+5 ");
  // A sequence that was forgotten meanwhile, or never sent, is not brought back.
  feed.on_stored(std::vector<FeedLength>{{kB, 9}});
  BOOST_TEST(feed.watermark(kB) == 0U);
  BOOST_TEST(text(feed.next({})) == "");
  BOOST_TEST(feed.watermark(kA) == 0U);
  BOOST_TEST(feed.behind() == 0U);
}

BOOST_AUTO_TEST_CASE(a_standby_that_holds_more_than_the_stage_is_behind_by_nothing) {
  StandbyFeed feed(1, 100);
  feed.next(std::vector<FeedLength>{{kA, 5}});
  feed.on_stored(std::vector<FeedLength>{{kA, 5}});
  BOOST_TEST(text(feed.next(std::vector<FeedLength>{{kA, 3}})) == "");
  BOOST_TEST(feed.behind() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
