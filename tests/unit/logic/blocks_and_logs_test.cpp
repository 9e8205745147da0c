// KV block numbers and token logs.
#include <boost/test/unit_test.hpp>

#include "actors/logic/block_pool.h"
#include "actors/logic/token_log.h"

namespace troupe {
namespace {

using Blocks = std::vector<uint32_t>;

BOOST_AUTO_TEST_SUITE(block_pool)

BOOST_AUTO_TEST_CASE(gives_the_lowest_free_numbers_first) {
  BlockPool pool(6);
  BOOST_TEST(pool.allocate(4).value() == (Blocks{0, 1, 2, 3}), boost::test_tools::per_element());
  pool.free(Blocks{2, 0});
  BOOST_TEST(pool.allocate(3).value() == (Blocks{0, 2, 4}), boost::test_tools::per_element());
  BOOST_TEST(pool.used() == 5U);
  BOOST_TEST(pool.available() == 1U);
  BOOST_TEST(pool.total() == 6U);
}

BOOST_AUTO_TEST_CASE(gives_all_that_is_asked_for_or_nothing) {
  BlockPool pool(3);
  BOOST_TEST(!pool.allocate(4).has_value());
  BOOST_TEST(pool.used() == 0U);
  BOOST_TEST(pool.allocate(3).has_value());
  BOOST_TEST(!pool.allocate(1).has_value());
  BOOST_TEST(pool.allocate(0).value().empty());
}

BOOST_AUTO_TEST_CASE(counts_a_begun_block_as_a_whole_one) {
  BOOST_TEST(BlockPool::blocks_for(0) == 0U);
  BOOST_TEST(BlockPool::blocks_for(1) == 1U);
  BOOST_TEST(BlockPool::blocks_for(64) == 1U);
  BOOST_TEST(BlockPool::blocks_for(65) == 2U);
  BOOST_TEST(BlockPool::blocks_for(0xFFFFFFFF) == 0x4000000U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(token_log)

BOOST_AUTO_TEST_CASE(grows_only_at_its_end) {
  TokenLog log({10, 11}, Blocks{12});
  BOOST_TEST((log.append(3, 13, 0xA) == AppendOutcome::kAppended));
  BOOST_TEST((log.append(5, 15, 0xB) == AppendOutcome::kGap));
  BOOST_TEST(log.size() == 4U);
  BOOST_TEST(log.prompt_size() == 2U);
  BOOST_TEST(log.generated_size() == 2U);
  const Blocks generated(log.generated().begin(), log.generated().end());
  BOOST_TEST(generated == (Blocks{12, 13}), boost::test_tools::per_element());
  BOOST_TEST(log.token_at(3) == 13U);
  BOOST_TEST(log.logits_digest_at(0) == 0U);
  BOOST_TEST(log.logits_digest_at(2) == 0U);
  BOOST_TEST(log.logits_digest_at(3) == 0xAU);
}

BOOST_AUTO_TEST_CASE(tells_a_repeat_from_a_divergence) {
  TokenLog log({10});
  BOOST_TEST((log.append(1, 11, 0xA) == AppendOutcome::kAppended));
  BOOST_TEST((log.append(1, 11, 0xA) == AppendOutcome::kRepeat));
  BOOST_TEST((log.append(1, 11, 0) == AppendOutcome::kRepeat));
  BOOST_TEST((log.append(1, 12, 0xA) == AppendOutcome::kDivergence));
  BOOST_TEST((log.append(1, 11, 0xB) == AppendOutcome::kDivergence));
  BOOST_TEST((log.append(0, 10, 0xC) == AppendOutcome::kRepeat));
  BOOST_TEST((log.append(0, 9, 0) == AppendOutcome::kDivergence));
  BOOST_TEST(log.size() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
