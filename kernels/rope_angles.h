// Cosines and sines of rotary positions, computed once per position on the host in a way that is
// exact on every target, and remembered: the rotation itself is then four products.
//
// The angle of pair i at position p is p · base^(-2i/rotary_dims), in double (IEEE +, -, *, / and
// fma only: no libm function), reduced to [-pi/4, pi/4] and rounded once to float; then
// functions.h. At position 1e5 the error is below 1e-7, where a float angle would be off by 3e-3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace troupe {

// base^exponent for base > 0, relative error below 1e-14 for results in [1e-300, 1e300].
double power(double base, double exponent);

struct SineCosine {
  float sine;
  float cosine;
};
SineCosine sine_cosine(double angle);

class RopeAngles {
 public:
  // Both arrays hold rotary_dims / 2 values, valid until the next call.
  struct Row {
    const float* cosines;
    const float* sines;
  };
  // Keeps the last positions seen in a table of kRows slots, refilled when the parameters change.
  Row row(uint32_t position, const RopeParameters& parameters);

  static constexpr size_t kRows = 1024;

 private:
  void reset(const RopeParameters& parameters);

  size_t rotary_dims_ = 0;
  float frequency_base_ = 0;
  std::vector<double> frequencies_;
  std::vector<float> values_;        // [kRows][2][rotary_dims / 2]
  std::vector<uint64_t> positions_;  // what each row holds; kNothing at first
  static constexpr uint64_t kNothing = ~uint64_t{0};
};

}  // namespace troupe
