// The golden vector: whoever computes it differently computes no stage.
#include <boost/test/unit_test.hpp>

#include "base/ids.h"
#include "kernels/backend.h"
#include "kernels/golden.h"

namespace troupe {
namespace {

BOOST_AUTO_TEST_SUITE(golden)

BOOST_AUTO_TEST_CASE(the_reference_defines_it) {
  const auto operators = make_operators({.kernels = KernelChoice::kReference}).value();
  BOOST_TEST(to_hex(golden_digest(*operators).value()) == to_hex(kGoldenExact1));
  BOOST_TEST(to_hex(golden_formats_digest(*operators).value()) == to_hex(kGoldenFormats1));
  BOOST_TEST(check_golden(*operators).ok());
}

BOOST_AUTO_TEST_CASE(every_backend_here_computes_it_with_any_number_of_threads) {
  for (const size_t threads : {1U, 2U, 5U}) {
    const auto operators = make_operators({.threads = threads}).value();
    BOOST_TEST_MESSAGE("backend " << operators->name());
    BOOST_TEST(check_golden(*operators).ok());
  }
}

BOOST_AUTO_TEST_CASE(another_order_of_summation_is_found) {
  const auto operators = make_operators({.test_split_k = true}).value();
  BOOST_TEST(golden_formats_digest(*operators).value() != kGoldenFormats1);
  const auto checked = check_golden(*operators);
  BOOST_TEST_REQUIRE(!checked.ok());
  BOOST_TEST((checked.error().code == ErrorCode::kUnavailable));
  BOOST_TEST(checked.error().message.find("other bits") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
