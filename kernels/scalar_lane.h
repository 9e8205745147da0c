// The Lane of functions.h that is one float, and the NaN rule.
//
// NaN rule: where an operator's output element is NaN it is the quiet NaN 0x7FC00000. Which payload
// and sign an operation on two NaNs returns differs between instruction sets and even between
// operand orders of one compiler; one canonical NaN keeps outputs comparable, and hashable, bit by
// bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace troupe {

inline constexpr float kCanonicalNan = std::numeric_limits<float>::quiet_NaN();
static_assert(std::bit_cast<uint32_t>(kCanonicalNan) == 0x7FC00000U);

inline float canonical(float value) {
  return value != value ? kCanonicalNan : value;
}

struct ScalarLane {
  float value;
  static ScalarLane set(float x) { return {x}; }
};
inline ScalarLane operator+(ScalarLane a, ScalarLane b) {
  return {a.value + b.value};
}
inline ScalarLane operator-(ScalarLane a, ScalarLane b) {
  return {a.value - b.value};
}
inline ScalarLane operator*(ScalarLane a, ScalarLane b) {
  return {a.value * b.value};
}
inline ScalarLane fma(ScalarLane a, ScalarLane b, ScalarLane c) {
  return {std::fma(a.value, b.value, c.value)};
}
inline ScalarLane clamp(ScalarLane x, float low, float high) {
  return {x.value > low ? (x.value < high ? x.value : high) : low};
}
inline ScalarLane nan_where(ScalarLane x, ScalarLane y) {
  return {x.value != x.value ? kCanonicalNan : y.value};
}
inline ScalarLane power_of_two(ScalarLane n) {
  const int32_t exponent = static_cast<int32_t>(n.value) + 127;
  return {std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23)};
}

}  // namespace troupe
