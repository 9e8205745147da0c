#include "transport/peer/beat_thread.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/log.h"
#include "base/time_slice.h"
#include "transport/peer/link_messages.h"

namespace troupe {
namespace {

// Reads per stream and round: a peer that floods its beat stream takes no more than this from the
// others.
constexpr int kReadsPerRound = 4;

timespec timespec_of(Duration duration) {
  const int64_t ns = std::max<int64_t>(duration.count(), 0);
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

}  // namespace

Result<std::unique_ptr<BeatThread>> BeatThread::start(BeatThreadOptions options) {
  OwnedFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return system_error(errno, "cannot make an event descriptor");
  return std::unique_ptr<BeatThread>(new BeatThread(std::move(options), std::move(wake)));
}

BeatThread::BeatThread(BeatThreadOptions options, OwnedFd wake)
    : options_(std::move(options)), wake_(std::move(wake)), thread_([this] {
        pthread_setname_np(pthread_self(), "beats");
        (void)go_first();
        run();
      }) {}

BeatThread::~BeatThread() {
  stopping_ = true;
  wake();
  thread_.join();
}

void BeatThread::add(LinkId link, OwnedFd stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_[link].socket = std::move(stream);
    changed_ = true;
  }
  wake();
}

OwnedFd BeatThread::remove(LinkId link) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(link);
  if (found == streams_.end()) return {};
  OwnedFd socket = std::move(found->second.socket);
  streams_.erase(found);
  changed_ = true;
  return socket;
}

void BeatThread::silence() {
  const std::lock_guard lock(mutex_);
  silent_ = true;
}

void BeatThread::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full: then the thread is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void BeatThread::run() {
  std::vector<pollfd> polled;
  std::vector<LinkId> links;  // of polled[1 …]
  Instant next = steady_now();
  while (!stopping_) {
    wait(next, polled, links);
    hear(polled, links);
    const Instant now = steady_now();
    if (now < next) continue;
    beat();
    // After a stall (the process was stopped) one beat says all that the missed ones would have.
    next = std::max(next + options_.interval, now + options_.interval / 2);
  }
}

void BeatThread::wait(Instant until, std::vector<pollfd>& polled, std::vector<LinkId>& links) {
  {
    const std::lock_guard lock(mutex_);
    if (changed_) {
      polled.assign(1, pollfd{.fd = wake_.get(), .events = POLLIN, .revents = 0});
      links.clear();
      for (const auto& [link, stream] : streams_) {
        polled.push_back({.fd = stream.socket.get(), .events = POLLIN, .revents = 0});
        links.push_back(link);
      }
      changed_ = false;
    }
  }
  const timespec timeout = timespec_of(until - steady_now());
  if (::ppoll(polled.data(), polled.size(), &timeout, nullptr) <= 0) {
    for (pollfd& entry : polled) entry.revents = 0;
    return;
  }
  if (polled.front().revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
  }
}

void BeatThread::hear(const std::vector<pollfd>& polled, const std::vector<LinkId>& links) {
  for (size_t i = 0; i < links.size(); ++i) {
    if (polled[i + 1].revents == 0) continue;
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(links[i]);
    if (found == streams_.end()) continue;  // removed meanwhile
    const Result<void> read = read_stream(links[i], found->second);
    if (!read.ok()) end(links[i], read.error());
  }
}

Result<void> BeatThread::read_stream(LinkId link, Stream& stream) {
  std::optional<Beat> newest;
  Result<void> outcome;
  for (int reads = 0; reads < kReadsPerRound && outcome.ok(); ++reads) {
    const std::span<std::byte> space = stream.reader.space();
    const ssize_t got = ::recv(stream.socket.get(), space.data(), space.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got < 0) {
      outcome = Error{ErrorCode::kUnavailable, system_error(errno, "beat stream").message};
    } else if (got == 0) {
      outcome = Error{ErrorCode::kUnavailable, "the peer's beat stream ended"};
    } else {
      stream.reader.filled(static_cast<size_t>(got));
      outcome = take_packets(stream, newest);
      if (static_cast<size_t>(got) < space.size()) break;
    }
  }
  if (newest && !silent_) options_.on_beat(link, *newest, heard_at(*newest));
  return outcome;
}

// A peer that beats but does not hear us cannot be told anything: its beats count as if they had
// come when it still heard. Counted in beats, not by the clock: while this process stands still it
// sends none that could go unheard.
Instant BeatThread::heard_at(const Beat& beat) const {
  constexpr uint64_t kUnderWay = 3;  // ours, and its answer, each up to an interval
  const Instant now = steady_now();
  if (beat.heard == 0 || beat.heard + kUnderWay >= number_) return now;
  const auto unheard =
      static_cast<int64_t>(std::min<uint64_t>(number_ - beat.heard - kUnderWay, 1U << 20));
  return now - unheard * options_.interval;
}

Result<void> BeatThread::take_packets(Stream& stream, std::optional<Beat>& newest) {
  while (true) {
    TROUPE_TRY(const std::optional<Packet> packet,
               stream.reader.next(payload_max(PacketKind::kBeat)));
    if (!packet) return {};
    if (packet->header.kind != PacketKind::kBeat)
      return Error{ErrorCode::kInvalidFrame, fmt::format("packet of kind {} on a beat stream",
                                                         static_cast<int>(packet->header.kind))};
    TROUPE_TRY(Beat beat, decode_beat(packet->payload));
    if (beat.number <= stream.last_number) continue;
    stream.last_number = beat.number;
    newest = std::move(beat);
  }
}

void BeatThread::beat() {
  Beat beat{.number = ++number_, .progress = {}};
  if (options_.progress) beat.progress = options_.progress();
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<LinkId, Error>> ended;
  for (auto& [link, stream] : streams_) {
    beat.heard = stream.last_number;
    const Result<SharedBuffer> payload = encode_beat(beat);
    if (!payload.ok()) {  // cannot happen with a bounded list; it would look like a missed beat
      log_error("beats", "cannot encode a beat: {}", payload.error().message);
      return;
    }
    const Result<void> written =
        write_stream(stream, whole_packet({.kind = PacketKind::kBeat}, payload.value().view()));
    if (!written.ok()) ended.emplace_back(link, written.error());
  }
  for (auto& [link, why] : ended) end(link, std::move(why));
}

// A beat goes out whole or, when the kernel's buffer is full, not at all; of one that went out in
// part, the rest goes before the next.
Result<void> BeatThread::write_stream(Stream& stream, ByteSpan packet) {
  for (const bool rest : {true, false}) {
    const ByteSpan bytes = rest ? ByteSpan(stream.unsent) : packet;
    if (bytes.empty()) continue;
    const ssize_t sent =
        ::send(stream.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
      return Error{ErrorCode::kUnavailable, system_error(errno, "beat stream").message};
    const auto taken = static_cast<size_t>(std::max<ssize_t>(sent, 0));
    if (!rest && taken == 0) return {};
    if (!rest || taken > 0)
      stream.unsent =
          std::vector<std::byte>(bytes.begin() + static_cast<ptrdiff_t>(taken), bytes.end());
    if (!stream.unsent.empty()) return {};
  }
  return {};
}

void BeatThread::end(LinkId link, Error why) {
  streams_.erase(link);
  changed_ = true;
  if (!silent_) options_.on_end(link, std::move(why));
}

}  // namespace troupe
