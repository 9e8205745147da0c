// The choice of a backend, and what pack() refuses.
#include <boost/test/unit_test.hpp>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_operators.h"
#include "tests/kernels/inputs.h"

namespace troupe::test {

namespace {

std::vector<std::unique_ptr<Operators>> all_backends() {
  std::vector<std::unique_ptr<Operators>> all;
  all.push_back(make_operators({.kernels = KernelChoice::kReference}).value());
  all.push_back(make_operators({.kernels = KernelChoice::kAuto, .threads = 2}).value());
  return all;
}

void expect_refusal(const WeightSource& source, const std::string& words) {
  for (const auto& operators : all_backends()) {
    const auto weights = operators->pack(source);
    BOOST_REQUIRE(!weights.ok());
    BOOST_TEST((weights.error().code == ErrorCode::kInvalidArgument));
    BOOST_TEST(weights.error().message.find(words) != std::string::npos,
               weights.error().message << " says " << words);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(backend)

BOOST_AUTO_TEST_CASE(choices_have_names) {
  for (const KernelChoice choice :
       {KernelChoice::kAuto, KernelChoice::kReference, KernelChoice::kAvx2})
    BOOST_TEST((parse_kernel_choice(to_string(choice)).value() == choice));
  BOOST_TEST(parse_kernel_choice("avx9").error().message.find("avx9") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_thread_count_out_of_range_is_refused) {
  for (const size_t threads : {size_t{0}, kThreadsMax + 1}) {
    const auto operators = make_operators({.threads = threads});
    BOOST_REQUIRE(!operators.ok());
    BOOST_TEST((operators.error().code == ErrorCode::kInvalidArgument));
  }
}

BOOST_AUTO_TEST_CASE(the_choice_is_what_runs) {
  BOOST_TEST(make_operators({.kernels = KernelChoice::kReference}).value()->name() == "reference");
  const auto automatic = make_operators({.threads = 2});
  BOOST_TEST(automatic.value()->name() == (cpu_has_avx2() ? "avx2" : "reference"));
  const auto avx2 = make_operators({.kernels = KernelChoice::kAvx2});
  BOOST_TEST(avx2.ok() == cpu_has_avx2());
  if (!avx2.ok()) BOOST_TEST((avx2.error().code == ErrorCode::kUnavailable));
  const auto control = make_operators({.test_split_k = true});
  BOOST_TEST(control.value()->name() == "split-k control");
}

BOOST_AUTO_TEST_CASE(weights_that_do_not_fit_their_shape_are_refused) {
  const std::vector<std::byte> bytes(1024);
  const ByteSpan all = bytes;
  expect_refusal({DataType::kF32, 0, 4, all.first(0)}, "0 x 4");
  expect_refusal({DataType::kF32, 4, 0, all.first(0)}, "4 x 0");
  expect_refusal({DataType::kF32, 4, 4, all.first(63)}, "63 bytes, needs 64");
  expect_refusal({DataType::kF32, 4, 4, all.first(65)}, "65 bytes, needs 64");
  expect_refusal({DataType::kQ4_0, 4, 33, all.first(72)}, "not a multiple of 32");
  expect_refusal({DataType::kQ8_0, size_t{1} << 40, size_t{1} << 40, all}, "1099511627776");
  expect_refusal({static_cast<DataType>(99), 1, 1, all.first(1)}, "type 99");
}

BOOST_AUTO_TEST_CASE(packed_weights_say_what_they_are) {
  Inputs inputs(1);
  for (const DataType type : kDataTypes)
    for (const auto& operators : all_backends()) {
      const size_t columns = whole_blocks(type, 64);
      const auto bytes = inputs.weight(type, 25, columns, Kind::kTame);
      const auto weights =
          operators->pack({.type = type, .rows = 25, .columns = columns, .bytes = {bytes}});
      BOOST_REQUIRE(weights.ok());
      BOOST_TEST((weights.value()->type() == type));
      BOOST_TEST(weights.value()->rows() == 25U);
      BOOST_TEST(weights.value()->columns() == columns);
      BOOST_TEST(weights.value()->memory_bytes() >= bytes.size());
      BOOST_TEST(weights.value()->memory_bytes() <= bytes.size() * 2);
    }
}

// Repacking costs at most a tenth of memory (IQ4_XS: 146 bytes for 136) where rows fill panels.
BOOST_AUTO_TEST_CASE(packed_weights_are_about_as_large_as_the_file) {
  Inputs inputs(2);
  for (const DataType type : kDataTypes)
    for (const auto& operators : all_backends()) {
      const auto bytes = inputs.weight(type, 32, 512, Kind::kTame);
      const auto weights =
          operators->pack({.type = type, .rows = 32, .columns = 512, .bytes = {bytes}});
      BOOST_REQUIRE(weights.ok());
      BOOST_TEST(weights.value()->memory_bytes() >= bytes.size());
      BOOST_TEST(weights.value()->memory_bytes() * 10 <= bytes.size() * 11, to_string(type));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
