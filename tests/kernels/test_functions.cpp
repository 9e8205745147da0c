// The functions of rule N4 against double, half precision against its definition, rotary angles
// against long double.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numbers>

#include "kernels/functions.h"
#include "kernels/quant_blocks.h"
#include "kernels/rope_angles.h"
#include "kernels/scalar_lane.h"

namespace troupe::test {

namespace {

float exponential(float x) {
  return exp_lane(ScalarLane{x}).value;
}

// Distance to the true value in units of the last place of a float of that size; subnormals share
// the smallest unit.
double error_in_ulps(float got, double true_value) {
  int exponent = 0;
  (void)std::frexp(true_value, &exponent);
  return std::fabs(static_cast<double>(got) - true_value) /
         std::ldexp(1.0, std::max(exponent, -125) - 24);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(functions)

BOOST_AUTO_TEST_CASE(exp_is_within_one_unit_in_the_last_place) {
  double worst = 0;
  for (float x = -103.9F; x < 88.7F; x += 0.00037F)
    worst = std::max(worst, error_in_ulps(exponential(x), std::exp(static_cast<double>(x))));
  BOOST_TEST_MESSAGE("exp: at most " << worst << " ulp");
  BOOST_TEST(worst <= 1.0);
}

BOOST_AUTO_TEST_CASE(exp_ends_as_it_should) {
  const float infinity = std::numeric_limits<float>::infinity();
  BOOST_TEST(exponential(0.0F) == 1.0F);
  BOOST_TEST(exponential(-0.0F) == 1.0F);
  BOOST_TEST(exponential(88.73F) == infinity);
  BOOST_TEST(exponential(1e30F) == infinity);
  BOOST_TEST(exponential(infinity) == infinity);
  BOOST_TEST(exponential(-104.0F) == 0.0F);
  BOOST_TEST(exponential(-infinity) == 0.0F);
  BOOST_TEST(exponential(-103.5F) > 0.0F);
  BOOST_TEST(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(sine_and_cosine_are_within_1e_7_on_their_range) {
  double worst = 0;
  for (float x = -0.7854F; x <= 0.7854F; x += 1e-6F) {
    const double sine = std::sin(static_cast<double>(x)), cosine = std::cos(static_cast<double>(x));
    worst = std::max(worst, std::fabs(static_cast<double>(sin_lane(ScalarLane{x}).value) - sine));
    worst = std::max(worst, std::fabs(static_cast<double>(cos_lane(ScalarLane{x}).value) - cosine));
  }
  BOOST_TEST_MESSAGE("sin, cos: at most " << worst);
  BOOST_TEST(worst <= 1e-7);
}

BOOST_AUTO_TEST_CASE(power_is_within_1e_14) {
  double worst = 0;
  for (const double base : {1e4, 1e5, 5e5, 1e6, 1.0, 0.5, 3.0})
    for (int i = 0; i <= 128; ++i) {
      const double exponent = -i / 128.0;
      const double exact = std::pow(base, exponent);
      worst = std::max(worst, std::fabs(power(base, exponent) - exact) / exact);
    }
  BOOST_TEST(worst <= 1e-14);
}

BOOST_AUTO_TEST_CASE(rotary_angles_are_within_2e_7_up_to_position_100000) {
  double worst = 0;
  for (const float base : {1e4F, 1e5F, 5e5F}) {
    const RopeParameters parameters{.head_dim = 64, .rotary_dims = 64, .frequency_base = base};
    RopeAngles angles;
    for (uint32_t position = 0; position <= 100000; position += position < 2000 ? 1 : 997) {
      const RopeAngles::Row row = angles.row(position, parameters);
      for (int i = 0; i < 32; ++i) {
        const long double frequency = std::pow(static_cast<long double>(base), -i / 32.0L);
        const long double angle = static_cast<long double>(position) * frequency;
        const auto error = [](float got, long double exact) {
          return static_cast<double>(std::fabs(static_cast<long double>(got) - exact));
        };
        worst = std::max(
            {worst, error(row.cosines[i], std::cos(angle)), error(row.sines[i], std::sin(angle))});
      }
    }
  }
  BOOST_TEST_MESSAGE("rope: at most " << worst);
  BOOST_TEST(worst <= 2e-7);
}

BOOST_AUTO_TEST_CASE(angles_are_the_same_when_a_slot_is_used_again) {
  const RopeParameters parameters{.head_dim = 8, .rotary_dims = 8, .frequency_base = 1e4F};
  RopeAngles angles;
  const float first = angles.row(5, parameters).sines[1];
  const float other = angles.row(5 + RopeAngles::kRows, parameters).sines[1];
  BOOST_TEST(first != other);
  BOOST_TEST(angles.row(5, parameters).sines[1] == first);
  RopeParameters slower = parameters;
  slower.frequency_base = 1e6F;
  BOOST_TEST(angles.row(5, slower).sines[1] != first);
  BOOST_TEST(angles.row(5, parameters).sines[1] == first);
}

// Every half, against the definition of the format.
BOOST_AUTO_TEST_CASE(every_half_widens_exactly_and_comes_back) {
  size_t wrong = 0;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const int exponent = (half >> 10) & 31, fraction = half & 1023;
    const float value = half_to_float(half);
    if (exponent == 31 && fraction != 0) {
      wrong += !std::isnan(value) || float_to_half(value) != (half | 0x200);
      continue;
    }
    const double magnitude = exponent == 31  ? HUGE_VAL
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(1024 + fraction, exponent - 25);
    wrong += static_cast<double>(value) != std::copysign(magnitude, half & 0x8000 ? -1 : 1);
    wrong += std::signbit(value) != ((half & 0x8000) != 0);
    wrong += float_to_half(value) != half;
  }
  BOOST_TEST(wrong == 0U);
}

// Between neighbours a and b: below the middle gives a, above b, the middle itself the even one.
BOOST_AUTO_TEST_CASE(floats_round_to_the_nearest_half_ties_to_even) {
  size_t wrong = 0;
  for (uint32_t h = 0; h < 0x7BFF; ++h) {
    const auto a = static_cast<uint16_t>(h), b = static_cast<uint16_t>(h + 1);
    const float middle = (half_to_float(a) + half_to_float(b)) / 2;
    wrong += float_to_half(middle) != (h % 2 == 0 ? a : b);
    wrong += float_to_half(std::nextafter(middle, 0.0F)) != a;
    wrong += float_to_half(std::nextafter(middle, 1e9F)) != b;
    wrong += float_to_half(-middle) != ((h % 2 == 0 ? a : b) | 0x8000);
  }
  BOOST_TEST(wrong == 0U);
  BOOST_TEST(float_to_half(65519.996F) == 0x7BFF);
  BOOST_TEST(float_to_half(65520.0F) == 0x7C00);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
