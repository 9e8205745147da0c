// Dialling: one connection attempt with a deadline, the pause before the next one, and the list of
// addresses to which a link is kept. All on the Asio thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "transport/peer/sockets.h"

namespace troupe {

// Doubles from `min` to `max`, each pause drawn between half of it and all of it, so that nodes
// that lost the same peer do not all come back at once. Pure: the draws are a function of the seed.
class Backoff {
 public:
  Backoff(Duration min, Duration max, uint64_t seed) : min_(min), max_(max), seed_(seed) {}
  Duration next();
  void reset() { doublings_ = 0; }

 private:
  Duration min_, max_;
  uint64_t seed_;
  uint64_t draws_ = 0;
  uint32_t doublings_ = 0;
};

using Connected = std::function<void(Result<StreamSocket>)>;
// Calls `done` once, later, with a connected socket or kUnavailable / kDeadlineExceeded / kIo.
void connect_stream(boost::asio::io_context& io, const boost::asio::ip::tcp::endpoint& endpoint,
                    Duration deadline, Connected done);

class Dialler {
 public:
  struct Options {
    Duration connect_deadline{};
    Duration redial_min{}, redial_max{};
    uint64_t seed = 0;
    std::function<void(const std::string& address, StreamSocket socket)> on_connected;
    std::function<void(const std::string& address, const Error& why)> on_failed;
  };
  Dialler(boost::asio::io_context& io, Options options) : io_(io), options_(std::move(options)) {}

  void dial(const std::string& address, const boost::asio::ip::tcp::endpoint& endpoint);
  void stop(const std::string& address);
  void stop_all();
  bool keeps(const std::string& address) const { return entries_.count(address) > 0; }
  // The connection made to this address is gone; `up_for` is zero if its link never came up. Dials
  // again after a pause. A link that was up for at least redial_max starts the pauses from the
  // shortest.
  void lost(const std::string& address, Duration up_for);

 private:
  struct Entry {
    Entry(boost::asio::io_context& io, const boost::asio::ip::tcp::endpoint& to, Backoff pauses)
        : endpoint(to), backoff(pauses), pause(io) {}
    boost::asio::ip::tcp::endpoint endpoint;
    Backoff backoff;
    boost::asio::steady_timer pause;
  };

  void attempt(const std::string& address, const std::shared_ptr<Entry>& entry);
  void attempt_later(const std::string& address, const std::shared_ptr<Entry>& entry);
  bool current(const std::string& address, const std::shared_ptr<Entry>& entry) const;

  boost::asio::io_context& io_;
  const Options options_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace troupe
