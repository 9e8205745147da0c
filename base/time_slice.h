// How long a thread wants to run once it runs. Linux 6.12 and later let a waking thread with a
// short slice go before one with a long slice (EEVDF), so threads that pass messages on ask for
// short ones and compute threads for the system's own: the hop from stage to stage then does not
// wait for a compute thread's slice to end. Elsewhere the wish has no effect.
#pragma once

#include "base/time.h"

namespace troupe {

// For the calling thread and the threads it starts from now on. Zero: the system's own choice.
// False if the kernel refused.
bool set_time_slice(Duration slice);

// For a thread that only passes messages on or beats, never works for long: it goes before every
// thread that computes, at once (SCHED_RR at the lowest real-time priority), where the process may
// ask for that (root, CAP_SYS_NICE or RLIMIT_RTPRIO) and it was not forbidden; else it keeps its
// short slices. Threads that it starts inherit this (UCX's own, which serves its connections). It
// must not spin on a lock that a lesser thread can hold: that thread would not get to let go of it.
// Linux leaves 5 % of a processor to all others even if such a thread ran wild. False if it does
// not.
bool go_first();
// Whether go_first() may ask for a real-time priority in this process; from the start it may.
void allow_realtime(bool allowed);

inline constexpr Duration kMessageSlice = 100us;  // the shortest Linux grants
inline constexpr Duration kComputeSlice = Duration{0};

}  // namespace troupe
