// The functions of numerics rule N4: float32 polynomials built of fma, one source for every target.
// A target supplies a Lane type (a float, or a vector of them) with
//   Lane::set(float)   +  -  *   fma(a, b, c)   power_of_two(n): 2^n for whole n in [-126, 127]
//   clamp(x, low, high): anything where x is NaN          nan_where(x, y): NaN where x is NaN, else
//   y
//
// Errors against the true value (tests/kernels measures them): exp 1 unit in the last place where
// the result is normal; sin and cos 1e-7 absolute on [-pi/4, pi/4].
//
// All are forced inline, so that a file compiled for one instruction set never lends its code to
// another.
#pragma once

namespace troupe {

#define TROUPE_LANE_FUNCTION \
  template <class Lane>      \
  [[gnu::always_inline]] inline

// Rounds |x| < 2^22 to the nearest whole number, ties to even: the addition leaves no fraction
// bits.
TROUPE_LANE_FUNCTION Lane round_to_whole(Lane x) {
  const Lane magic = Lane::set(12582912.0F);  // 1.5 · 2^23
  return (x + magic) - magic;
}

// Cephes' expf scheme: x = n·ln 2 + r, e^r by a polynomial of degree 7, then two exact or
// once-rounded steps to 2^n, so that subnormal results are right too. Overflows to infinity,
// underflows to 0.
TROUPE_LANE_FUNCTION Lane exp_lane(Lane x) {
  const Lane inside = clamp(x, -105.0F, 89.0F);  // beyond these the result is 0 or infinity
  const Lane n = round_to_whole(inside * Lane::set(1.44269504F));
  Lane r = fma(n, Lane::set(-0.693359375F), inside);
  r = fma(n, Lane::set(2.12194440e-4F), r);
  Lane p = Lane::set(1.9875691500e-4F);
  p = fma(p, r, Lane::set(1.3981999507e-3F));
  p = fma(p, r, Lane::set(8.3334519073e-3F));
  p = fma(p, r, Lane::set(4.1665795894e-2F));
  p = fma(p, r, Lane::set(1.6666665459e-1F));
  p = fma(p, r, Lane::set(5.0000001201e-1F));
  p = fma(p, r * r, r) + Lane::set(1.0F);
  const Lane half = round_to_whole(n * Lane::set(0.5F));
  return nan_where(x, (p * power_of_two(half)) * power_of_two(n - half));
}

// Sine of x in [-pi/4, pi/4] (Cephes' sinf).
TROUPE_LANE_FUNCTION Lane sin_lane(Lane x) {
  const Lane z = x * x;
  Lane p = Lane::set(-1.9515295891e-4F);
  p = fma(p, z, Lane::set(8.3321608736e-3F));
  p = fma(p, z, Lane::set(-1.6666654611e-1F));
  return fma(p * z, x, x);
}

// Cosine of x in [-pi/4, pi/4] (Cephes' cosf).
TROUPE_LANE_FUNCTION Lane cos_lane(Lane x) {
  const Lane z = x * x;
  Lane p = Lane::set(2.443315711809948e-5F);
  p = fma(p, z, Lane::set(-1.388731625493765e-3F));
  p = fma(p, z, Lane::set(4.166664568298827e-2F));
  p = fma(p, z, Lane::set(-0.5F));
  return fma(p, z, Lane::set(1.0F));
}

#undef TROUPE_LANE_FUNCTION

}  // namespace troupe
