#include "transport/peer/dialler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/prng.h"
#include "transport/peer/address.h"

namespace troupe {

using boost::asio::ip::tcp;
using boost::system::error_code;

Duration Backoff::next() {
  const Duration longest =
      doublings_ < 30 ? std::min(max_, min_ * (int64_t{1} << doublings_)) : max_;
  if (longest < max_) ++doublings_;
  const float draw = philox_uniform(seed_, draws_++, 0);
  return longest / 2 + Duration(static_cast<int64_t>(static_cast<double>(longest.count() / 2) *
                                                     static_cast<double>(draw)));
}

namespace {

// A port nobody listens on may be lent to the dialling socket itself: TCP then connects it to
// itself, and the port is taken when its owner comes back.
bool connected_to_itself(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint local = socket.local_endpoint(error);
  if (error) return false;
  const tcp::endpoint remote = socket.remote_endpoint(error);
  return !error && local == remote;
}

struct Attempt {
  explicit Attempt(boost::asio::io_context& io) : socket(io), deadline(io) {}
  tcp::socket socket;
  boost::asio::steady_timer deadline;
  bool late = false;
};

Result<StreamSocket> outcome(Attempt& attempt, const tcp::endpoint& endpoint, error_code error) {
  const std::string to = address_text(endpoint);
  if (attempt.late)
    return Error{ErrorCode::kDeadlineExceeded, fmt::format("no connection to {} in time", to)};
  if (error)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cannot connect to {}: {}", to, error.message())};
  if (connected_to_itself(attempt.socket))
    return Error{ErrorCode::kUnavailable, fmt::format("nobody listens on {}", to)};
  return StreamSocket(std::move(attempt.socket));
}

}  // namespace

void connect_stream(boost::asio::io_context& io, const tcp::endpoint& endpoint, Duration deadline,
                    Connected done) {
  const auto fail = [&io, done](Error why) {
    boost::asio::post(io, [done, why = std::move(why)] { done(why); });
  };
  Result<OwnedFd> opened = open_stream(endpoint);
  if (!opened.ok()) return fail(opened.error());
  const auto attempt = std::make_shared<Attempt>(io);
  error_code error;
  attempt->socket.assign(endpoint.protocol(), opened.value().get(), error);  // NOLINT: in `error`
  if (error) return fail(system_error(error.value(), "cannot watch a socket"));
  opened.value().release();

  attempt->deadline.expires_after(deadline);
  attempt->deadline.async_wait([attempt](error_code cancelled) {
    if (cancelled) return;
    attempt->late = true;
    error_code ignored;
    attempt->socket.close(ignored);  // NOLINT: nothing to do about it
  });
  attempt->socket.async_connect(endpoint, [attempt, endpoint, done](error_code failure) {
    attempt->deadline.cancel();
    done(outcome(*attempt, endpoint, failure));
  });
}

void Dialler::dial(const std::string& address, const tcp::endpoint& endpoint) {
  if (keeps(address)) return;
  const uint64_t seed = digest64(as_byte_span(address), options_.seed);
  const auto entry = std::make_shared<Entry>(
      io_, endpoint, Backoff(options_.redial_min, options_.redial_max, seed));
  entries_.emplace(address, entry);
  attempt(address, entry);
}

void Dialler::stop(const std::string& address) {
  const auto found = entries_.find(address);
  if (found == entries_.end()) return;
  found->second->pause.cancel();
  entries_.erase(found);
}

void Dialler::stop_all() {
  for (const auto& [address, entry] : entries_) entry->pause.cancel();
  entries_.clear();
}

void Dialler::lost(const std::string& address, Duration up_for) {
  const auto found = entries_.find(address);
  if (found == entries_.end()) return;
  if (up_for >= options_.redial_max) found->second->backoff.reset();
  attempt_later(address, found->second);
}

bool Dialler::current(const std::string& address, const std::shared_ptr<Entry>& entry) const {
  const auto found = entries_.find(address);
  return found != entries_.end() && found->second == entry;
}

void Dialler::attempt(const std::string& address, const std::shared_ptr<Entry>& entry) {
  connect_stream(io_, entry->endpoint, options_.connect_deadline,
                 [this, address, entry](Result<StreamSocket> connected) {
                   if (!current(address, entry)) return;  // stopped meanwhile: the socket closes
                   if (connected.ok()) {
                     options_.on_connected(address, std::move(connected).value());
                   } else {
                     options_.on_failed(address, connected.error());
                     attempt_later(address, entry);
                   }
                 });
}

void Dialler::attempt_later(const std::string& address, const std::shared_ptr<Entry>& entry) {
  entry->pause.expires_after(entry->backoff.next());
  entry->pause.async_wait([this, address, entry](error_code cancelled) {
    if (!cancelled && current(address, entry)) attempt(address, entry);
  });
}

}  // namespace troupe
