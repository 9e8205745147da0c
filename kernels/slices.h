// The order of a dot product (numerics rule N2): its K elements are cut into blocks of 32 and the
// blocks into 8 slices; a slice sums in ascending k from +0.0; slices combine pairwise. Forced
// inline, see functions.h.
#pragma once

#include <cstddef>

namespace troupe {

inline constexpr size_t kSlices = 8;
inline constexpr size_t kSliceBlock = 32;

[[gnu::always_inline]] inline constexpr size_t slice_blocks(size_t k) {
  return (k + kSliceBlock - 1) / kSliceBlock;
}

// First block of a slice; slice_begin(kSlices, blocks) == blocks.
[[gnu::always_inline]] inline constexpr size_t slice_begin(size_t slice, size_t blocks) {
  return slice * blocks / kSlices;
}

template <class T>
[[gnu::always_inline]] inline T combine_slices(const T* s) {
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

}  // namespace troupe
