// The beat thread: writes a beat to every link each interval and reads the beats of the peers, on
// streams that carry nothing else, with poll() and non-blocking calls. It shares no queue with
// anything: a busy Asio thread, a long message or a stuck actor does not delay a beat. A peer
// that does not read its stream misses beats, it never blocks others.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "transport/peer/packet.h"
#include "transport/peer/peer_links.h"
#include "transport/peer/sockets.h"

struct pollfd;

namespace troupe {

struct BeatThreadOptions {
  Duration interval{};
  std::function<std::vector<Progress>()> progress;  // may be empty
  // Both on the beat thread, with its lock held: must not call add() or remove(). The instant is
  // when the beat arrived, earlier by as many intervals as beats of ours went unheard there.
  std::function<void(LinkId, const Beat&, Instant)> on_beat;
  std::function<void(LinkId, Error)> on_end;  // once; the stream is closed and forgotten
};

class BeatThread {
 public:
  // Errors: kIo.
  static Result<std::unique_ptr<BeatThread>> start(BeatThreadOptions options);
  ~BeatThread();
  BeatThread(const BeatThread&) = delete;
  BeatThread& operator=(const BeatThread&) = delete;

  void add(LinkId link, OwnedFd stream);
  // After it no event comes for the link. Returns the stream, still open (the peer takes its end
  // for the end of this process), or nothing if it ended.
  OwnedFd remove(LinkId link);
  // After it no event comes at all; beats go on.
  void silence();

 private:
  struct Stream {
    OwnedFd socket;
    PacketReader reader;
    std::vector<std::byte> unsent;  // rest of a beat of which the kernel took only a part
    uint64_t last_number = 0;
  };
  using Streams = std::map<LinkId, Stream>;

  BeatThread(BeatThreadOptions options, OwnedFd wake);
  void run();
  void wait(Instant until, std::vector<pollfd>& polled, std::vector<LinkId>& links);
  void hear(const std::vector<pollfd>& polled, const std::vector<LinkId>& links);
  Result<void> read_stream(LinkId link, Stream& stream);
  Result<void> take_packets(Stream& stream, std::optional<Beat>& newest);
  Instant heard_at(const Beat& beat) const;
  void beat();
  Result<void> write_stream(Stream& stream, ByteSpan packet);
  void end(LinkId link, Error why);
  void wake();

  const BeatThreadOptions options_;
  const OwnedFd wake_;
  std::atomic<bool> stopping_{false};
  uint64_t number_ = 0;  // beat thread only
  std::mutex mutex_;     // of what follows
  Streams streams_;
  bool changed_ = true;  // since the list of polled sockets was made
  bool silent_ = false;
  std::thread thread_;
};

}  // namespace troupe
