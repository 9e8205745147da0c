// How long an actor may wait for another one of its process. Every request has a deadline and an
// error handler.
#pragma once

#include "base/time.h"

namespace troupe {

// For an answer that takes no work of its own. A call to a peer has its own deadline and is
// answered then; whoever asks the peer actor for one waits this much longer.
inline constexpr Duration kAnswerMax = 30s;

}  // namespace troupe
