// A sum over a vector by N3: 16 lanes, lane j adds elements j, j+16, … ascending from +0.0; then
// halves fold.
#pragma once

#include <cstddef>

namespace troupe {

template <class Element>
float vector_sum(size_t count, Element&& element) {
  float lanes[16] = {};
  for (size_t i = 0; i < count; ++i) lanes[i % 16] += element(i);
  for (size_t half = 8; half >= 1; half /= 2)
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace troupe
