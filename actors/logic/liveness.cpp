#include "actors/logic/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace troupe {

const char* to_string(Liveness liveness) {
  switch (liveness) {
    case Liveness::kAlive:
      return "alive";
    case Liveness::kSuspect:
      return "suspect";
    case Liveness::kDead:
      return "dead";
  }
  return "unknown";
}

PhiDetector::PhiDetector(PhiOptions options, Instant start) : options_(options), last_(start) {
  // One sample of what is expected, so that the first real intervals have company.
  intervals_.push_back(to_seconds(options_.beat_interval));
}

void PhiDetector::heard(Instant now) {
  intervals_.push_back(std::max(0.0, to_seconds(now - last_)));
  if (intervals_.size() > std::max<size_t>(1, options_.samples_max)) intervals_.pop_front();
  last_ = std::max(last_, now);
}

double PhiDetector::phi(Instant now) const {
  const auto count = static_cast<double>(intervals_.size());
  double mean = 0, variance = 0;
  for (const double interval : intervals_) mean += interval / count;
  for (const double interval : intervals_)
    variance += (interval - mean) * (interval - mean) / count;
  const double deviation = std::max(std::sqrt(variance), to_seconds(options_.deviation_min));
  const double z = (to_seconds(now - last_) - mean) / deviation;
  // The normal distribution's tail beyond z; erfc underflows at about 1e-308.
  constexpr double kPhiMax = 300;
  const double later = 0.5 * std::erfc(z / std::sqrt(2.0));
  return later > 0 ? std::clamp(-std::log10(later), 0.0, kPhiMax) : kPhiMax;
}

PeerLiveness::PeerLiveness(LivenessOptions options, Instant start)
    : options_(options), detector_(options.phi, start) {}

void PeerLiveness::heard(Instant now, uint64_t beat) {
  if (beat_ && beat <= *beat_) return;
  beat_ = beat;
  if (now > detector_.last_heard()) detector_.heard(now);
}

void PeerLiveness::progressed(uint32_t stage, uint64_t started, uint64_t finished, Instant now,
                              Duration predicted_step) {
  const auto [entry, is_first] = progress_.try_emplace(stage);
  Progress& progress = entry->second;
  if (is_first || progress.started != started || progress.finished != finished)
    progress.since = now;
  progress.started = started;
  progress.finished = finished;
  progress.predicted_step = predicted_step;
}

void PeerLiveness::forget_stage(uint32_t stage) {
  progress_.erase(stage);
}

LivenessVerdict PeerLiveness::judge(Instant now, Duration observer_late) const {
  const Duration stretch =
      observer_late > options_.phi.beat_interval ? observer_late : Duration::zero();
  const Duration silence = now - detector_.last_heard();
  if (silence > options_.silence_dead + stretch)
    return {Liveness::kDead,
            fmt::format("no beat for {:.0f} ms, allowed are {:.0f} ms", to_milliseconds(silence),
                        to_milliseconds(options_.silence_dead + stretch)),
            std::nullopt};
  for (const auto& [stage, progress] : progress_) {
    const Duration stood = now - progress.since;
    const auto by_steps = std::chrono::duration_cast<Duration>(
        options_.stall_steps * std::chrono::duration<double, std::nano>(progress.predicted_step));
    const Duration allowed = std::max(options_.stall_min, by_steps) + stretch;
    if (progress.started > progress.finished && stood > allowed)
      return {
          Liveness::kDead,
          fmt::format(
              "stage {} hangs: its compute thread started {} micro-batches, finished {} and "
              "stands still for {:.1f} s, allowed are {:.1f} s",
              stage, progress.started, progress.finished, to_seconds(stood), to_seconds(allowed)),
          stage};
  }
  const double phi = detector_.phi(now - stretch);
  if (silence > options_.silence_min + stretch && phi > options_.phi_suspect)
    return {Liveness::kSuspect,
            fmt::format("no beat for {:.0f} ms (phi {:.1f})", to_milliseconds(silence), phi),
            std::nullopt};
  return {};
}

}  // namespace troupe
