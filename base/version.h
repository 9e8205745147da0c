// The software's version, for people; what must match between nodes is the protocol range
// (transport/peer).
#pragma once

namespace troupe {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace troupe
