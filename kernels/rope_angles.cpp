#include "kernels/rope_angles.h"

#include <bit>
#include <cmath>

#include "kernels/functions.h"
#include "kernels/scalar_lane.h"

namespace troupe {

namespace {

constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits, then the rest (fdlibm's split)
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kHalfPiHigh = 1.57079632679489655800e+00;  // the nearest double, then the rest
constexpr double kHalfPiLow = 6.12323399573676603587e-17;

// Nearest whole number, ties to even, for |x| < 2^51.
double round_to_whole(double x) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 · 2^52
  return (x + kMagic) - kMagic;
}

// ln x for normal x > 0: x = 2^e · m with m near 1, ln m = 2 artanh((m-1)/(m+1)).
double natural_logarithm(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFU) | 0x3FF0000000000000U);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double t = (m - 1) / (m + 1);  // |t| < 0.172: t^24 is below 1e-18
  const double z = t * t;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = std::fma(sum, z, 1.0 / k);
  const double e = exponent;
  return std::fma(e, kLn2High, std::fma(e, kLn2Low, 2 * t * sum));
}

// e^x for |x| < 700: x = n·ln 2 + r, then the series to r^17/17!.
double exponential(double x) {
  const double n = round_to_whole(x * 1.4426950408889634);
  const double r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));
  double sum = 1;
  for (int k = 17; k >= 1; --k) sum = std::fma(sum, r / k, 1.0);
  return sum * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

}  // namespace

double power(double base, double exponent) {
  return exponential(exponent * natural_logarithm(base));
}

SineCosine sine_cosine(double angle) {
  const double quarter = round_to_whole(angle * 0.63661977236758134308);
  const double rest = std::fma(-quarter, kHalfPiLow, std::fma(-quarter, kHalfPiHigh, angle));
  const ScalarLane x{static_cast<float>(rest)};
  const float sine = sin_lane(x).value, cosine = cos_lane(x).value;
  switch (static_cast<int64_t>(quarter) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

void RopeAngles::reset(const RopeParameters& parameters) {
  rotary_dims_ = parameters.rotary_dims;
  frequency_base_ = parameters.frequency_base;
  const size_t pairs = rotary_dims_ / 2;
  frequencies_.resize(pairs);
  for (size_t i = 0; i < pairs; ++i)
    frequencies_[i] = power(static_cast<double>(frequency_base_),
                            -static_cast<double>(2 * i) / static_cast<double>(rotary_dims_));
  values_.resize(kRows * rotary_dims_);
  positions_.assign(kRows, kNothing);
}

RopeAngles::Row RopeAngles::row(uint32_t position, const RopeParameters& parameters) {
  if (parameters.rotary_dims != rotary_dims_ || parameters.frequency_base != frequency_base_)
    reset(parameters);
  const size_t pairs = rotary_dims_ / 2;
  const size_t slot = position % kRows;
  if (positions_.empty()) return {nullptr, nullptr};  // rotary_dims 0 from the start
  float* cosines = values_.data() + slot * rotary_dims_;
  float* sines = cosines + pairs;
  if (positions_[slot] != position) {
    for (size_t i = 0; i < pairs; ++i) {
      const SineCosine both = sine_cosine(static_cast<double>(position) * frequencies_[i]);
      cosines[i] = both.cosine;
      sines[i] = both.sine;
    }
    positions_[slot] = position;
  }
  return {cosines, sines};
}

}  // namespace troupe
