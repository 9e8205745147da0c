#include "tests/integration/sweep_streams.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::test {
namespace {

// The cluster may note a death before we saw it: in milliseconds.
constexpr int64_t kNotedBefore = 5;

bool is_loss(const std::string& event) {
  return event.find(" is lost: ") != std::string::npos ||
         event.find(" takes the seat of ") != std::string::npos ||
         (event.starts_with("stage ") && event.find(" on ") == 7) ||
         (event.starts_with("head ") && event.find(" starts") != std::string::npos);
}

bool is_service(const std::string& event) {
  return event.starts_with("view ") && event.find(" serves") != std::string::npos;
}

struct Noted {
  int64_t lost = 0, served = 0;  // milliseconds since 1970; 0: not yet
};

Noted noted(const ClusterStatus& status, const Strike& strike) {
  Noted noted;
  for (const ClusterEvent& event : status.events) {
    if (event.unix_ms < strike.unix_ms - kNotedBefore) continue;
    if (noted.lost == 0 && is_loss(event.text)) noted.lost = event.unix_ms;
    if (noted.lost != 0 && noted.served == 0 && is_service(event.text))
      noted.served = event.unix_ms;
  }
  return noted;
}

}  // namespace

Strike strike_now() {
  return {steady_now(), wall_clock_ms()};
}

bool served_again(const ClusterStatus& status, const Strike& strike) {
  return noted(status, strike).served != 0;
}

Streams::Streams(SweepCluster& cluster) : cluster_(cluster), streams_(cluster.streams()) {
  for (uint32_t number = 0; number < streams_.size(); ++number) {
    Stream& stream = streams_[number];
    stream.request = cluster.request(number);
    threads_.emplace_back([this, &stream, number] {
      stream.answer = ask(cluster_.client(number), stream.request, [&stream](uint64_t index) {
        stream.heard.token(index);
        stream.tokens = stream.heard.at.size();
      });
      stream.ended = true;
    });
  }
}

Streams::~Streams() {
  finish({});
}

bool Streams::all_ended() const {
  return std::ranges::all_of(streams_, [](const auto& stream) { return stream.ended.load(); });
}

bool Streams::wait_for(uint64_t token) const {
  while (streams_[0].tokens <= token && !streams_[0].ended) std::this_thread::sleep_for(200us);
  return streams_[0].tokens > token;
}

void Streams::finish(const std::function<void()>& tick) {
  if (threads_.empty()) return;
  const Instant deadline = steady_now() + kHungAfter;
  while (!all_ended() && steady_now() < deadline) {
    if (tick) tick();
    std::this_thread::sleep_for(2ms);
  }
  for (Stream& stream : streams_) {
    stream.hung = !stream.ended;
    if (stream.hung) (void)cluster_.rpc().cancel(stream.request.id);
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Streams::judge(const Strike& strike, Outcome& outcome) const {
  for (uint32_t number = 0; number < streams_.size(); ++number) {
    const Stream& stream = streams_[number];
    Judgement judgement = test::judge(cluster_.reference(number), stream.heard, stream.answer);
    if (stream.hung)
      judgement = {Verdict::kHung, fmt::format("after {} tokens", stream.heard.at.size())};
    ++outcome.streams[judgement.verdict];
    if (judgement.verdict != Verdict::kEqual && outcome.failure.empty())
      outcome.failure =
          fmt::format("stream {} {}: {}", number, to_string(judgement.verdict), judgement.why);
    const Silence silence = longest_silence(stream.heard, strike.at);
    if (silence.length > Duration{0}) outcome.pauses_ms.push_back(to_milliseconds(silence.length));
  }
}

// From the head's events, whose clock is ours.
std::optional<Split> Streams::split(const Strike& strike, const ClusterStatus& status) const {
  const Noted head = noted(status, strike);
  if (head.served == 0) return std::nullopt;
  // When each stream went on, seen from the moment at which the head served.
  const Instant served = strike.at + std::chrono::milliseconds{head.served - strike.unix_ms};
  std::optional<double> first, last;
  for (const Stream& stream : streams_) {
    const auto next = std::ranges::lower_bound(stream.heard.at, served);
    if (next == stream.heard.at.end()) continue;
    const double after = to_milliseconds(*next - served);
    first = std::min(first.value_or(after), after);
    last = std::max(last.value_or(after), after);
  }
  if (!first) return std::nullopt;
  return Split{std::max(0.0, static_cast<double>(head.lost - strike.unix_ms)),
               static_cast<double>(head.served - head.lost), *first, *last - *first};
}

}  // namespace troupe::test
