#include "transport/peer/address.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <charconv>

#include "transport/wire_text.h"

namespace troupe {
namespace {

namespace ip = boost::asio::ip;

Error no_address(const std::string& text, const std::string& why) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("address \"{}\": {}", clean_text(text, 256), why)};
}

}  // namespace

Result<ip::tcp::endpoint> parse_loopback_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return no_address(text, "no port; expected for example 127.0.0.1:7420");
  const char* const end = text.data() + text.size();
  uint16_t port = 0;
  const auto [stop, failure] = std::from_chars(text.data() + colon + 1, end, port);
  if (failure != std::errc() || stop != end)
    return no_address(text, "the port is not a number from 0 to 65535");

  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return no_address(text, "an IPv6 address needs brackets, for example [::1]:7420");
  }
  if (host == "localhost") host = "127.0.0.1";
  boost::system::error_code error;
  const ip::address address = ip::make_address(host, error);
  if (error) return no_address(text, "the host is neither an IP address nor localhost");
  if (!address.is_loopback())
    return no_address(text,
                      "not on this machine; links beyond loopback need TLS, which is not available "
                      "yet: use 127.0.0.1 or [::1]");
  return ip::tcp::endpoint(address, port);
}

std::string address_text(const ip::tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", host, endpoint.port())
                                    : fmt::format("{}:{}", host, endpoint.port());
}

}  // namespace troupe
