#include "base/result.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <memory>
#include <string>

using namespace troupe;

namespace {

Result<int> half_of(int number) {
  if (number % 2 != 0)
    return Error{ErrorCode::kInvalidArgument, std::to_string(number) + " is odd"};
  return number / 2;
}

Result<int> quarter_of(int number) {
  TROUPE_TRY(const int half, half_of(number));
  TROUPE_TRY(const int quarter, half_of(half));
  return quarter;
}

Result<void> must_be_even(int number) {
  TROUPE_TRY_VOID(half_of(number));
  return {};
}

// How a process ends that does this.
template <class Act>
int signal_that_ends(Act act) {
  const pid_t child = fork();
  if (child == 0) {
    close(2);
    // Boost.Test would catch the signal and report it.
    signal(SIGABRT, SIG_DFL);
    act();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(results)

BOOST_AUTO_TEST_CASE(carry_a_value_or_an_error) {
  BOOST_TEST(half_of(8).value() == 4);
  const Result<int> odd = half_of(7);
  BOOST_TEST(!odd);
  BOOST_TEST(to_string(odd.error()) == "invalid argument: 7 is odd");
  BOOST_TEST(with_context(odd.error(), "halving").message == "halving: 7 is odd");
}

BOOST_AUTO_TEST_CASE(try_goes_on_or_returns_the_error) {
  BOOST_TEST(quarter_of(12).value() == 3);
  BOOST_TEST(quarter_of(6).error().message == "3 is odd");
  BOOST_TEST(quarter_of(5).error().message == "5 is odd");
  BOOST_TEST(must_be_even(2).ok());
  BOOST_TEST(!must_be_even(3).ok());
}

BOOST_AUTO_TEST_CASE(move_what_cannot_be_copied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> value = std::move(result).value();
  BOOST_TEST(*value == 5);
}

BOOST_AUTO_TEST_CASE(asking_the_wrong_half_ends_the_process) {
  BOOST_TEST(signal_that_ends([] { (void)half_of(7).value(); }) == SIGABRT);
  BOOST_TEST(signal_that_ends([] { (void)half_of(8).error(); }) == SIGABRT);
  BOOST_TEST(signal_that_ends([] { must_be_even(3).value(); }) == SIGABRT);
  BOOST_TEST(signal_that_ends([] { (void)half_of(8).value(); }) == 0);
}

BOOST_AUTO_TEST_CASE(every_code_has_a_name) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code)
    BOOST_TEST(std::string(to_string(static_cast<ErrorCode>(code))) != "unknown");
}

BOOST_AUTO_TEST_SUITE_END()
