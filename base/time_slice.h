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

inline constexpr Duration kMessageSlice = 100us;  // the shortest Linux grants
inline constexpr Duration kComputeSlice = Duration{0};

}  // namespace troupe
