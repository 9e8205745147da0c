// The main function of every Boost.Test executable.
#define BOOST_TEST_MODULE troupe
#include <boost/test/unit_test.hpp>
