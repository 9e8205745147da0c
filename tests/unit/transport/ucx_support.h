// UCX transports for tests: the environment they need, set before the first one is made.
#pragma once

#include <boost/test/unit_test.hpp>
#include <memory>
#include <utility>

#include "transport/ucx/ucx_transport.h"

namespace troupe::test {

constexpr uint64_t kUcxKey = 0x7472;

inline std::unique_ptr<Transport> ucx_transport(TransportEvents& events, UcxOptions options = {}) {
  if (options.key == 0) options.key = kUcxKey;
  // Before UCX's first context; later calls change nothing.
  BOOST_REQUIRE(set_ucx_environment(options.network).ok());
  auto transport = make_ucx_transport(options, events);
  BOOST_REQUIRE_MESSAGE(transport.ok(), (transport.ok() ? "" : to_string(transport.error())));
  return std::move(transport).value();
}

}  // namespace troupe::test
